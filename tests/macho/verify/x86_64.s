# A function that only the long form of unwind information can describe, a table in the code, and an address used twice.
.text
.globl _in_frame
.p2align 4
_in_frame:
.cfi_startproc
 pushq %rbx
 .cfi_def_cfa_offset 16
 .cfi_offset %rbx, -16
 subq $96, %rsp
 .cfi_def_cfa_offset 112
 .cfi_escape 0x0f, 0x03, 0x77, 0xf0, 0x00
 callq _puts
 addq $96, %rsp
 popq %rbx
 retq
.cfi_endproc
.globl _with_table
.p2align 4
_with_table:
 leaq Ltable(%rip), %rcx
 movslq (%rcx,%rdi,4), %rax
 addq %rcx, %rax
 jmpq *%rax
Lbase:
 movl $1, %eax
 retq
Lcase:
 jmp _in_frame
 .p2align 2
.data_region jt32
Ltable:
 .long Lbase-Ltable
 .long Lcase-Ltable
.end_data_region
.globl _hoisted
.p2align 4
_hoisted:
 pushq %rbx
 leaq _in_frame(%rip), %rbx
 callq _with_table
 callq *%rbx
 popq %rbx
 retq
.subsections_via_symbols
