// Entry points that C cannot express.
        .text
        .p2align 2
#if defined(__aarch64__)
        .globl  _host_call
_host_call:
        mov     x16, x0
        mov     x0, x1
        mov     x1, x2
        mov     x2, x3
        svc     #0x80
        ret

// The address of a thread-local variable: the emulator has put the address of the image's block into the key of each
// descriptor. Must change no register but x0, x16 and x17.
        .globl  __tlv_bootstrap
__tlv_bootstrap:
        ldr     x16, [x0, #8]
        ldr     x0, [x0, #16]
        add     x0, x0, x16
        ret

// The whole stack is mapped, so no probe is needed. Must change no register.
        .globl  ___chkstk_darwin
___chkstk_darwin:
        ret

        .globl  _setjmp, __setjmp
_setjmp:
__setjmp:
        stp     x19, x20, [x0]
        stp     x21, x22, [x0, #16]
        stp     x23, x24, [x0, #32]
        stp     x25, x26, [x0, #48]
        stp     x27, x28, [x0, #64]
        mov     x16, sp
        stp     x29, x30, [x0, #80]
        str     x16, [x0, #96]
        mov     x0, #0
        ret

        .globl  _longjmp, __longjmp
_longjmp:
__longjmp:
        ldp     x19, x20, [x0]
        ldp     x21, x22, [x0, #16]
        ldp     x23, x24, [x0, #32]
        ldp     x25, x26, [x0, #48]
        ldp     x27, x28, [x0, #64]
        ldp     x29, x30, [x0, #80]
        ldr     x16, [x0, #96]
        mov     sp, x16
        cmp     w1, #0
        csinc   w0, w1, wzr, ne
        ret
#else
        .globl  _host_call
_host_call:
        movq    %rdi, %rax
        movq    %rsi, %rdi
        movq    %rdx, %rsi
        movq    %rcx, %rdx
        syscall
        retq

// Must change no register but rax and rdi.
        .globl  __tlv_bootstrap
__tlv_bootstrap:
        movq    16(%rdi), %rax
        addq    8(%rdi), %rax
        retq

        .globl  ___chkstk_darwin, ____chkstk_darwin
___chkstk_darwin:
____chkstk_darwin:
        retq

        .globl  _setjmp, __setjmp
_setjmp:
__setjmp:
        movq    %rbx, (%rdi)
        movq    %rbp, 8(%rdi)
        movq    %r12, 16(%rdi)
        movq    %r13, 24(%rdi)
        movq    %r14, 32(%rdi)
        movq    %r15, 40(%rdi)
        leaq    8(%rsp), %rax
        movq    %rax, 48(%rdi)
        movq    (%rsp), %rax
        movq    %rax, 56(%rdi)
        xorl    %eax, %eax
        retq

        .globl  _longjmp, __longjmp
_longjmp:
__longjmp:
        movq    (%rdi), %rbx
        movq    8(%rdi), %rbp
        movq    16(%rdi), %r12
        movq    24(%rdi), %r13
        movq    32(%rdi), %r14
        movq    40(%rdi), %r15
        movq    48(%rdi), %rsp
        movl    %esi, %eax
        testl   %eax, %eax
        jne     1f
        incl    %eax
1:      jmpq    *56(%rdi)
#endif

// Every symbol is bound before the program runs, so this is never called; linkers require that it exists.
        .globl  dyld_stub_binder
dyld_stub_binder:
#if defined(__aarch64__)
        brk     #1
#else
        ud2
#endif
        .subsections_via_symbols
