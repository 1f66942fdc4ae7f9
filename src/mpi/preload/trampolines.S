// One trampoline and one slot per exported name. A slot holds the function to jump to. All slots start with
// larklane_preload_first, which gets the right function from resolve.c. The trampoline leaves the slot's address in a
// scratch register, from which larklane_preload_first derives the name. Order of the slots: calls.def,
// then extensions.def, then p2p.def, MPI_X before PMPI_X.

.macro trampoline name
  .pushsection .data.rel.local, "aw", %progbits
slot_\name:
  .quad larklane_preload_first
  .popsection
  .globl \name
  .type \name, %function
  .p2align 4
\name:
  .cfi_startproc
#if defined(__x86_64__)
  endbr64
  leaq slot_\name(%rip), %r11
  jmpq *(%r11)
#elif defined(__aarch64__)
  hint #34  // bti c
  adrp x16, slot_\name
  add x16, x16, :lo12:slot_\name
  ldar x17, [x16]  // acquire: pairs with the release store in resolve.c
  br x17
#else
#error "larklane: trampolines are written for x86-64 and aarch64"
#endif
  .cfi_endproc
  .size \name, . - \name
.endm

.section .data.rel.local, "aw", %progbits
.p2align 3
.globl larklane_preload_slots
.hidden larklane_preload_slots
larklane_preload_slots:

.text
#define LARKLANE_CALL(ret, Name, params, args) trampoline MPI_##Name; trampoline PMPI_##Name
#define LARKLANE_EXTENSION(ret, Name, params, args) trampoline MPIX_##Name; trampoline PMPIX_##Name
#include "mpi/abi/calls.def"
#include "mpi/abi/extensions.def"
#undef LARKLANE_EXTENSION
#ifdef LARKLANE_MESSAGES
#include "mpi/p2p/p2p.def"
#endif
#undef LARKLANE_CALL

// Saves each register that can carry an argument, calls larklane_preload_resolve(slot, return address), jumps to its result.
.type larklane_preload_first, %function
.p2align 4
larklane_preload_first:
  .cfi_startproc
#if defined(__x86_64__)
  endbr64
  pushq %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  movq %rsp, %rbp
  .cfi_def_cfa_register %rbp
  pushq %rdi
  pushq %rsi
  pushq %rdx
  pushq %rcx
  pushq %r8
  pushq %r9
  pushq %rax
  pushq %r10
  subq $128, %rsp
  movups %xmm0, (%rsp)
  movups %xmm1, 16(%rsp)
  movups %xmm2, 32(%rsp)
  movups %xmm3, 48(%rsp)
  movups %xmm4, 64(%rsp)
  movups %xmm5, 80(%rsp)
  movups %xmm6, 96(%rsp)
  movups %xmm7, 112(%rsp)
  movq %r11, %rdi
  movq 8(%rbp), %rsi
  call larklane_preload_resolve
  movq %rax, %r11
  movups (%rsp), %xmm0
  movups 16(%rsp), %xmm1
  movups 32(%rsp), %xmm2
  movups 48(%rsp), %xmm3
  movups 64(%rsp), %xmm4
  movups 80(%rsp), %xmm5
  movups 96(%rsp), %xmm6
  movups 112(%rsp), %xmm7
  addq $128, %rsp
  popq %r10
  popq %rax
  popq %r9
  popq %r8
  popq %rcx
  popq %rdx
  popq %rsi
  popq %rdi
  popq %rbp
  .cfi_def_cfa %rsp, 8
  jmpq *%r11
#else
  hint #34  // bti c
  stp x29, x30, [sp, #-224]!
  .cfi_def_cfa_offset 224
  .cfi_offset x29, -224
  .cfi_offset x30, -216
  mov x29, sp
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  stp x6, x7, [sp, #64]
  str x8, [sp, #80]
  stp q0, q1, [sp, #96]
  stp q2, q3, [sp, #128]
  stp q4, q5, [sp, #160]
  stp q6, q7, [sp, #192]
  mov x0, x16
  mov x1, x30
  bl larklane_preload_resolve
  mov x17, x0
  ldp x0, x1, [sp, #16]
  ldp x2, x3, [sp, #32]
  ldp x4, x5, [sp, #48]
  ldp x6, x7, [sp, #64]
  ldr x8, [sp, #80]
  ldp q0, q1, [sp, #96]
  ldp q2, q3, [sp, #128]
  ldp q4, q5, [sp, #160]
  ldp q6, q7, [sp, #192]
  ldp x29, x30, [sp], #224
  .cfi_def_cfa_offset 0
  br x17
#endif
  .cfi_endproc
  .size larklane_preload_first, . - larklane_preload_first

.section .note.GNU-stack, "", %progbits
