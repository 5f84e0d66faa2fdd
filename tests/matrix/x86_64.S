# Hand-written code as run-time libraries have it.
        .text
        .globl assembly_sized
        .type assembly_sized, @function
assembly_sized:
        lea     1(%rdi,%rdi,2), %eax
        jmp     unsized_tail
        .size assembly_sized, . - assembly_sized

# Without a type, a size or unwind information; calls of it are resolved by the assembler.
unsized_tail:
        add     $100, %eax
        ret

# Data in the text: a table of distances that the same function reads.
        .globl assembly_table
        .type assembly_table, @function
assembly_table:
        lea     in_text(%rip), %rax
        movslq  (%rax,%rdi,4), %rdx
        lea     (%rax,%rdx), %rax
        jmp     *%rax
1:      mov     $11, %eax
        ret
2:      mov     $22, %eax
        ret
3:      mov     $33, %eax
        ret
        .balign 4
in_text:
        .long   1b - in_text, 2b - in_text, 3b - in_text
        .size assembly_table, . - assembly_table

# Runs into the next function.
        .globl assembly_falls
        .type assembly_falls, @function
assembly_falls:
        add     $5, %edi
        .size assembly_falls, . - assembly_falls
        .globl assembly_lands
        .type assembly_lands, @function
assembly_lands:
        lea     (%rdi,%rdi), %eax
        ret
        .size assembly_lands, . - assembly_lands

# Reads a constant after the function.
        .globl assembly_data
        .type assembly_data, @function
assembly_data:
        mov     constant(%rip), %eax
        imul    %edi, %eax
        ret
        .size assembly_data, . - assembly_data
        .balign 4
constant:
        .long   1234567 / 1000

# A call through a word in read-only data.
        .globl assembly_pointer
        .type assembly_pointer, @function
assembly_pointer:
        sub     $8, %rsp
        call    *target_word(%rip)
        add     $8, %rsp
        ret
        .size assembly_pointer, . - assembly_pointer

        .section .data.rel.ro, "aw", @progbits
        .balign 8
target_word:
        .quad   assembly_sized
        .globl assembly_pointers
        .type assembly_pointers, @object
assembly_pointers:
        .quad   assembly_lands
        .quad   assembly_sized
        .size assembly_pointers, . - assembly_pointers
        .section .note.GNU-stack, "", @progbits
