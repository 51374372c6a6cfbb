/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* First instructions, one function a rule. */
	.include "shape.inc"

	FUNC push_rbx
	pushq %rbx
	ret
	END push_rbx
	FUNC push_r12
	pushq %r12
	ret
	END push_r12
	FUNC endbr_push
	endbr64
	pushq %rbx
	ret
	END endbr_push
	FUNC test_je
	testq %rdi, %rdi
	je 1f
	nop
1:	ret
	END test_je
	FUNC test_je_far
	endbr64
	testq %rdi, %rdi
	je push_rbx
	ret
	END test_je_far
	FUNC xor_push
	xorl %eax, %eax
	cmpl $0, 8(%rdi)
	movq %rdi, %r11
	pushq %rbx
	ret
	END xor_push
	FUNC nop1
	nop
	ret
	END nop1
	FUNC nop5
	.byte 0x0f, 0x1f, 0x44, 0x00, 0x00
	pushq %rbx
	ret
	END nop5
	FUNC call_first
	call push_rbx
	ret
	END call_first
	FUNC jump_first
	jmp push_rbx@PLT
	END jump_first
	/* an entry probe may sit behind a moved rsp */
	FUNC sub_je
	subq $8, %rsp
	testq %rdi, %rdi
	je 1f
	nop
1:	addq $8, %rsp
	ret
	END sub_je
	/* not emulated, or not any more with a prefix */
	FUNC wide_nop
	.byte 0x66, 0x90
	ret
	END wide_nop
	FUNC rex_push
	.byte 0x40, 0x53
	ret
	END rex_push
	FUNC bnd_call
	.byte 0xf2
	call push_rbx
	ret
	END bnd_call
	FUNC push_imm
	pushq $1
	popq %rax
	ret
	END push_imm
	FUNC jrcxz_first
	jrcxz 1f
	nop
1:	ret
	END jrcxz_first
	/* arguments change before */
	FUNC xor_r8
	xorl %r8d, %r8d
	pushq %rbx
	ret
	END xor_r8
	FUNC size_moved
	movq %rdi, %rsi
	xorl %edi, %edi
	je 1f
1:	ret
	END size_moved
	FUNC size_moved_on
	movq %rdi, %rax
	movq %rax, %r8
	xorl %edi, %edi
	xorl %eax, %eax
	pushq %rbx
	ret
	END size_moved_on
	FUNC size_halved
	movl %edi, %esi
	xorl %edi, %edi
	je 1f
1:	ret
	END size_halved
	FUNC size_kept
	movq %rdi, %rbx
	je 1f
1:	ret
	END size_kept
	FUNC size_swapped
	xchgq %rdi, %rsi
	je 1f
1:	ret
	END size_swapped
	FUNC size_of_segment
	movq %fs, %rdi
	je 1f
1:	ret
	END size_of_segment
	FUNC mul_push
	mulq %rax
	pushq %rbx
	ret
	END mul_push
	FUNC cdq_push
	cltd
	pushq %rbx
	ret
	END cdq_push
	FUNC stos_push
	rep stosb
	pushq %rbx
	ret
	END stos_push
	FUNC pop_push
	popq %rax
	pushq %rax
	ret
	END pop_push
	FUNC byte_push
	movb $1, %cl
	pushq %rbx
	ret
	END byte_push
	FUNC ret_push
	ret
	pushq %rbx
	END ret_push
	FUNC syscall_push
	syscall
	pushq %rbx
	ret
	END syscall_push
	/* the cheap instruction is met again in the same call */
	FUNC loop_je
	xorl %eax, %eax
1:	cmpb $0, (%rdi, %rax)
	je 2f
	incq %rax
	jmp 1b
2:	ret
	END loop_je
	FUNC loop_cold
	testq %rdi, %rdi
1:	jne cold
	ret
	END loop_cold
	.section .text.unlikely, "ax", @progbits
	HIDDEN cold
	decl %eax
	jmp 1b
	END cold
	.text
	/* a loop to the entry itself makes no difference */
	FUNC loop_entry
	pushq %rbx
	popq %rbx
	decl %eax
	jne loop_entry
	ret
	END loop_entry
	FUNC undecodable
	.byte 0x06, 0x06, 0x06
	END undecodable
