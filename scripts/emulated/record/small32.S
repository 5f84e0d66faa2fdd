// A 32-bit program: exits with 6.
    .text
    .globl _start
    .arm
_start:
    mov r0, #6
    mov r7, #1
    svc #0
