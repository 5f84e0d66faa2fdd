// Hand-written code as run-time libraries have it.
        .text
        .globl assembly_sized
        .type assembly_sized, %function
assembly_sized:
        add     w0, w0, w0, lsl #1
        add     w0, w0, #1
        b       unsized_tail
        .size assembly_sized, . - assembly_sized

// Without a type, a size or unwind information; calls of it are resolved by the assembler.
unsized_tail:
        add     w0, w0, #100
        ret

// Data in the text: a table of distances that the same function reads.
        .globl assembly_table
        .type assembly_table, %function
assembly_table:
        adr     x1, in_text
        ldrsw   x2, [x1, w0, sxtw #2]
        add     x1, x1, x2
        br      x1
1:      mov     w0, #11
        ret
2:      mov     w0, #22
        ret
3:      mov     w0, #33
        ret
in_text:
        .long   1b - in_text, 2b - in_text, 3b - in_text
        .size assembly_table, . - assembly_table

// Runs into the next function.
        .globl assembly_falls
        .type assembly_falls, %function
assembly_falls:
        add     w0, w0, #5
        .size assembly_falls, . - assembly_falls
        .globl assembly_lands
        .type assembly_lands, %function
assembly_lands:
        add     w0, w0, w0
        ret
        .size assembly_lands, . - assembly_lands

// Reads a constant after the function.
        .globl assembly_data
        .type assembly_data, %function
assembly_data:
        ldr     w1, constant
        mul     w0, w0, w1
        ret
        .size assembly_data, . - assembly_data
constant:
        .long   1234567 / 1000

// A call through a word in read-only data.
        .globl assembly_pointer
        .type assembly_pointer, %function
assembly_pointer:
        adrp    x1, target_word
        ldr     x1, [x1, #:lo12:target_word]
        br      x1
        .size assembly_pointer, . - assembly_pointer

        .section .data.rel.ro, "aw", %progbits
        .balign 8
target_word:
        .quad   assembly_sized
        .globl assembly_pointers
        .type assembly_pointers, %object
assembly_pointers:
        .quad   assembly_lands
        .quad   assembly_sized
        .size assembly_pointers, . - assembly_pointers
        .section .note.GNU-stack, "", %progbits
