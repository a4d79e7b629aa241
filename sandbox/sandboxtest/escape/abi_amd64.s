#include "textflag.h"

// func int80(nr, arg uint32) int64
TEXT ·int80(SB), NOSPLIT, $0-16
	MOVL nr+0(FP), AX
	MOVL arg+4(FP), BX
	XORL CX, CX
	XORL DX, DX
	INT  $0x80
	MOVQ AX, ret+8(FP)
	RET
