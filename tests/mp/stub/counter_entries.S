// Counts a call and jumps to the next function of that name; in the order of counter.h.

.macro entry name
  .pushsection .bss
next_\name:
  .quad 0
count_\name:
  .quad 0
  .popsection
  .globl \name
  .type \name, %function
\name:
#if defined(__x86_64__)
  lock incq count_\name(%rip)
  jmpq *next_\name(%rip)
#elif defined(__aarch64__)
  adrp x16, next_\name
  add x16, x16, :lo12:next_\name
  ldr x17, [x16, #8]
  add x17, x17, #1
  str x17, [x16, #8]
  ldr x17, [x16]
  br x17
#endif
  .size \name, . - \name
.endm

.bss
.p2align 3
.globl counter_slots
.hidden counter_slots
counter_slots:

.text
#define EACH(name) entry name;
#include "counter.h"

.section .note.GNU-stack, "", %progbits
