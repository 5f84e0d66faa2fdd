// The program whose reports are kept: functions of fixed sizes, so that no version of a compiler changes a figure.
// `-DNEXT` gives the next version of it, whose startup runs one more function.

.macro function name, size
    .globl \name
    .type \name, @function
    .balign 16
\name:
    .cfi_startproc
    .rept \size - 1
    nop
    .endr
    ret
    .cfi_endproc
    .size \name, . - \name
.endm

    .text
    function parse_arguments, 700
    function print_help, 3000
    function read_settings, 900
    function write_settings, 4200
#ifdef NEXT
    function load_plugins, 5000
#endif
    function open_window, 1200
    function close_window, 3900
    function draw, 600
    function save, 5200
    function search, 2500

    // The address of the place inside of it pins it.
    .globl anchored
    .type anchored, @function
    .balign 16
anchored:
    .cfi_startproc
    .rept 300
    nop
    .endr
inside:
    ret
    .cfi_endproc
    .size anchored, . - anchored

    .globl main
    .type main, @function
    .balign 16
main:
    .cfi_startproc
    call parse_arguments
    call read_settings
#ifdef NEXT
    call load_plugins
#endif
    call open_window
    lea inside(%rip), %rax
    call *%rax
    lea commands(%rip), %rax
    call *(%rax)
    mov $60, %eax
    xor %edi, %edi
    syscall
    .cfi_endproc
    .size main, . - main

    .section .data.rel.ro, "aw"
commands:
    .quad draw, save, search, close_window, write_settings, print_help
    .section .note.GNU-stack, "", @progbits
