// A function that only the long form of unwind information can describe, a table in the code, and an address used twice.
.text
.globl _in_frame
.p2align 2
_in_frame:
.cfi_startproc
 sub sp, sp, #96
 .cfi_def_cfa_offset 96
 str x20, [sp, #24]
 .cfi_offset w20, -72
 bl _puts
 ldr x20, [sp, #24]
 add sp, sp, #96
 ret
.cfi_endproc
.globl _with_table
.p2align 2
_with_table:
 adr x9, Lbase
 adr x10, Ltable
 ldrsw x11, [x10, x0, lsl #2]
 add x9, x9, x11
 br x9
Lbase:
 mov w0, #1
 ret
Lcase:
 b _in_frame
.data_region jt32
Ltable:
 .long Lbase-Lbase
 .long Lcase-Lbase
.end_data_region
.globl _hoisted
.p2align 2
_hoisted:
 stp x29, x30, [sp, #-32]!
 str x19, [sp, #16]
 adrp x19, _in_frame@PAGE
 cbz x0, L1
 bl _with_table
 add x1, x19, _in_frame@PAGEOFF
 b L2
L1:
 add x1, x19, _in_frame@PAGEOFF
 nop
L2:
 blr x1
 ldr x19, [sp, #16]
 ldp x29, x30, [sp], #32
 ret
.subsections_via_symbols
