//! Opcodes of vector instructions, by what they do, their width, element and encoding.

use iced_x86::Code;
use membound_core::kernel::formula::Operation;
use membound_core::kernel::{Element, Width};

use crate::asm::instruction_set::Shape;

/// The opcode for elements of this shape.
pub(super) fn opcode(op: Op, shape: Shape, avx: bool) -> Code {
    let double = of_doubles(op, shape.width, avx);
    match shape.element {
        Element::Double => double,
        Element::Float => single_precision(double),
    }
}

/// What a vector instruction does; with a width and an instruction set it names one opcode.
#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
    Load,
    LoadNt,
    Store,
    StoreNt,
    Arithmetic(Operation),
    Root,
    And,
    Xor,
    /// `first += second * third`
    MultiplyAdd,
    /// `first = first * second + third`
    MultiplyInto,
    Gather,
    Move,
    Clear,
}

/// The opcode table for doubles: scalar, 128, 256, 512 bits.
fn of_doubles(op: Op, width: Width, avx: bool) -> Code {
    use Code::*;
    let legacy = |scalar, packed| if width == Width::Scalar { scalar } else { packed };
    let vex = |row: [Code; 4]| row[width as usize];
    match (op, avx) {
        (Op::Load, false) => legacy(Movsd_xmm_xmmm64, Movupd_xmm_xmmm128),
        (Op::Load, true) => {
            vex([VEX_Vmovsd_xmm_m64, VEX_Vmovupd_xmm_xmmm128, VEX_Vmovupd_ymm_ymmm256, EVEX_Vmovupd_zmm_k1z_zmmm512])
        }
        (Op::LoadNt, false) => Movntdqa_xmm_m128,
        (Op::LoadNt, true) => {
            vex([VEX_Vmovsd_xmm_m64, VEX_Vmovntdqa_xmm_m128, VEX_Vmovntdqa_ymm_m256, EVEX_Vmovntdqa_zmm_m512])
        }
        (Op::Store, false) => legacy(Movsd_xmmm64_xmm, Movupd_xmmm128_xmm),
        (Op::Store, true) => {
            vex([VEX_Vmovsd_m64_xmm, VEX_Vmovupd_xmmm128_xmm, VEX_Vmovupd_ymmm256_ymm, EVEX_Vmovupd_zmmm512_k1z_zmm])
        }
        (Op::StoreNt, false) => legacy(Movntsd_m64_xmm, Movntpd_m128_xmm),
        (Op::StoreNt, true) => {
            vex([Movntsd_m64_xmm, VEX_Vmovntpd_m128_xmm, VEX_Vmovntpd_m256_ymm, EVEX_Vmovntpd_m512_zmm])
        }
        (Op::Arithmetic(Operation::Add), false) => legacy(Addsd_xmm_xmmm64, Addpd_xmm_xmmm128),
        (Op::Arithmetic(Operation::Subtract), false) => legacy(Subsd_xmm_xmmm64, Subpd_xmm_xmmm128),
        (Op::Arithmetic(Operation::Multiply), false) => legacy(Mulsd_xmm_xmmm64, Mulpd_xmm_xmmm128),
        (Op::Arithmetic(Operation::Add), true) => vex([
            VEX_Vaddsd_xmm_xmm_xmmm64,
            VEX_Vaddpd_xmm_xmm_xmmm128,
            VEX_Vaddpd_ymm_ymm_ymmm256,
            EVEX_Vaddpd_zmm_k1z_zmm_zmmm512b64_er,
        ]),
        (Op::Arithmetic(Operation::Subtract), true) => vex([
            VEX_Vsubsd_xmm_xmm_xmmm64,
            VEX_Vsubpd_xmm_xmm_xmmm128,
            VEX_Vsubpd_ymm_ymm_ymmm256,
            EVEX_Vsubpd_zmm_k1z_zmm_zmmm512b64_er,
        ]),
        (Op::Arithmetic(Operation::Multiply), true) => vex([
            VEX_Vmulsd_xmm_xmm_xmmm64,
            VEX_Vmulpd_xmm_xmm_xmmm128,
            VEX_Vmulpd_ymm_ymm_ymmm256,
            EVEX_Vmulpd_zmm_k1z_zmm_zmmm512b64_er,
        ]),
        (Op::Arithmetic(Operation::Divide), false) => legacy(Divsd_xmm_xmmm64, Divpd_xmm_xmmm128),
        (Op::Arithmetic(Operation::Minimum), false) => legacy(Minsd_xmm_xmmm64, Minpd_xmm_xmmm128),
        (Op::Arithmetic(Operation::Maximum), false) => legacy(Maxsd_xmm_xmmm64, Maxpd_xmm_xmmm128),
        (Op::Arithmetic(Operation::Divide), true) => vex([
            VEX_Vdivsd_xmm_xmm_xmmm64,
            VEX_Vdivpd_xmm_xmm_xmmm128,
            VEX_Vdivpd_ymm_ymm_ymmm256,
            EVEX_Vdivpd_zmm_k1z_zmm_zmmm512b64_er,
        ]),
        (Op::Arithmetic(Operation::Minimum), true) => vex([
            VEX_Vminsd_xmm_xmm_xmmm64,
            VEX_Vminpd_xmm_xmm_xmmm128,
            VEX_Vminpd_ymm_ymm_ymmm256,
            EVEX_Vminpd_zmm_k1z_zmm_zmmm512b64_sae,
        ]),
        (Op::Arithmetic(Operation::Maximum), true) => vex([
            VEX_Vmaxsd_xmm_xmm_xmmm64,
            VEX_Vmaxpd_xmm_xmm_xmmm128,
            VEX_Vmaxpd_ymm_ymm_ymmm256,
            EVEX_Vmaxpd_zmm_k1z_zmm_zmmm512b64_sae,
        ]),
        (Op::Root, false) => legacy(Sqrtsd_xmm_xmmm64, Sqrtpd_xmm_xmmm128),
        (Op::Root, true) => vex([
            VEX_Vsqrtsd_xmm_xmm_xmmm64,
            VEX_Vsqrtpd_xmm_xmmm128,
            VEX_Vsqrtpd_ymm_ymmm256,
            EVEX_Vsqrtpd_zmm_k1z_zmmm512b64_er,
        ]),
        // Bits know no elements, and single ones are handled as whole registers.
        (Op::And, false) => Andpd_xmm_xmmm128,
        (Op::Xor, false) => Xorpd_xmm_xmmm128,
        (Op::And, true) => vex([
            VEX_Vandpd_xmm_xmm_xmmm128,
            VEX_Vandpd_xmm_xmm_xmmm128,
            VEX_Vandpd_ymm_ymm_ymmm256,
            EVEX_Vpandq_zmm_k1z_zmm_zmmm512b64,
        ]),
        (Op::Xor, true) => vex([
            VEX_Vxorpd_xmm_xmm_xmmm128,
            VEX_Vxorpd_xmm_xmm_xmmm128,
            VEX_Vxorpd_ymm_ymm_ymmm256,
            EVEX_Vpxorq_zmm_k1z_zmm_zmmm512b64,
        ]),
        (Op::Gather, _) => {
            vex([INVALID, VEX_Vgatherqpd_xmm_vm64x_xmm, VEX_Vgatherqpd_ymm_vm64y_ymm, EVEX_Vgatherqpd_zmm_k1_vm64z])
        }
        (Op::MultiplyAdd, _) => vex([
            VEX_Vfmadd231sd_xmm_xmm_xmmm64,
            VEX_Vfmadd231pd_xmm_xmm_xmmm128,
            VEX_Vfmadd231pd_ymm_ymm_ymmm256,
            EVEX_Vfmadd231pd_zmm_k1z_zmm_zmmm512b64_er,
        ]),
        (Op::MultiplyInto, _) => vex([
            VEX_Vfmadd213sd_xmm_xmm_xmmm64,
            VEX_Vfmadd213pd_xmm_xmm_xmmm128,
            VEX_Vfmadd213pd_ymm_ymm_ymmm256,
            EVEX_Vfmadd213pd_zmm_k1z_zmm_zmmm512b64_er,
        ]),
        (Op::Move, false) => Movapd_xmm_xmmm128,
        (Op::Move, true) => vex([
            VEX_Vmovapd_xmm_xmmm128,
            VEX_Vmovapd_xmm_xmmm128,
            VEX_Vmovapd_ymm_ymmm256,
            EVEX_Vmovapd_zmm_k1z_zmmm512,
        ]),
        (Op::Clear, false) => Xorpd_xmm_xmmm128,
        // A 128-bit VEX form clears the whole register.
        (Op::Clear, true) => VEX_Vxorpd_xmm_xmm_xmmm128,
    }
}

/// The opcodes of [`of_doubles`], each with its counterpart for floats.
const SINGLE_PRECISION: &[(Code, Code)] = {
    use Code::*;
    &[
        (Movsd_xmm_xmmm64, Movss_xmm_xmmm32),
        (Movupd_xmm_xmmm128, Movups_xmm_xmmm128),
        (VEX_Vmovsd_xmm_m64, VEX_Vmovss_xmm_m32),
        (VEX_Vmovupd_xmm_xmmm128, VEX_Vmovups_xmm_xmmm128),
        (VEX_Vmovupd_ymm_ymmm256, VEX_Vmovups_ymm_ymmm256),
        (EVEX_Vmovupd_zmm_k1z_zmmm512, EVEX_Vmovups_zmm_k1z_zmmm512),
        // Non-temporal loads know no elements.
        (Movntdqa_xmm_m128, Movntdqa_xmm_m128),
        (VEX_Vmovntdqa_xmm_m128, VEX_Vmovntdqa_xmm_m128),
        (VEX_Vmovntdqa_ymm_m256, VEX_Vmovntdqa_ymm_m256),
        (EVEX_Vmovntdqa_zmm_m512, EVEX_Vmovntdqa_zmm_m512),
        (Movsd_xmmm64_xmm, Movss_xmmm32_xmm),
        (Movupd_xmmm128_xmm, Movups_xmmm128_xmm),
        (VEX_Vmovsd_m64_xmm, VEX_Vmovss_m32_xmm),
        (VEX_Vmovupd_xmmm128_xmm, VEX_Vmovups_xmmm128_xmm),
        (VEX_Vmovupd_ymmm256_ymm, VEX_Vmovups_ymmm256_ymm),
        (EVEX_Vmovupd_zmmm512_k1z_zmm, EVEX_Vmovups_zmmm512_k1z_zmm),
        (Movntsd_m64_xmm, Movntss_m32_xmm),
        (Movntpd_m128_xmm, Movntps_m128_xmm),
        (VEX_Vmovntpd_m128_xmm, VEX_Vmovntps_m128_xmm),
        (VEX_Vmovntpd_m256_ymm, VEX_Vmovntps_m256_ymm),
        (EVEX_Vmovntpd_m512_zmm, EVEX_Vmovntps_m512_zmm),
        (Addsd_xmm_xmmm64, Addss_xmm_xmmm32),
        (Addpd_xmm_xmmm128, Addps_xmm_xmmm128),
        (VEX_Vaddsd_xmm_xmm_xmmm64, VEX_Vaddss_xmm_xmm_xmmm32),
        (VEX_Vaddpd_xmm_xmm_xmmm128, VEX_Vaddps_xmm_xmm_xmmm128),
        (VEX_Vaddpd_ymm_ymm_ymmm256, VEX_Vaddps_ymm_ymm_ymmm256),
        (EVEX_Vaddpd_zmm_k1z_zmm_zmmm512b64_er, EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er),
        (Subsd_xmm_xmmm64, Subss_xmm_xmmm32),
        (Subpd_xmm_xmmm128, Subps_xmm_xmmm128),
        (VEX_Vsubsd_xmm_xmm_xmmm64, VEX_Vsubss_xmm_xmm_xmmm32),
        (VEX_Vsubpd_xmm_xmm_xmmm128, VEX_Vsubps_xmm_xmm_xmmm128),
        (VEX_Vsubpd_ymm_ymm_ymmm256, VEX_Vsubps_ymm_ymm_ymmm256),
        (EVEX_Vsubpd_zmm_k1z_zmm_zmmm512b64_er, EVEX_Vsubps_zmm_k1z_zmm_zmmm512b32_er),
        (Mulsd_xmm_xmmm64, Mulss_xmm_xmmm32),
        (Mulpd_xmm_xmmm128, Mulps_xmm_xmmm128),
        (VEX_Vmulsd_xmm_xmm_xmmm64, VEX_Vmulss_xmm_xmm_xmmm32),
        (VEX_Vmulpd_xmm_xmm_xmmm128, VEX_Vmulps_xmm_xmm_xmmm128),
        (VEX_Vmulpd_ymm_ymm_ymmm256, VEX_Vmulps_ymm_ymm_ymmm256),
        (EVEX_Vmulpd_zmm_k1z_zmm_zmmm512b64_er, EVEX_Vmulps_zmm_k1z_zmm_zmmm512b32_er),
        (Divsd_xmm_xmmm64, Divss_xmm_xmmm32),
        (Divpd_xmm_xmmm128, Divps_xmm_xmmm128),
        (VEX_Vdivsd_xmm_xmm_xmmm64, VEX_Vdivss_xmm_xmm_xmmm32),
        (VEX_Vdivpd_xmm_xmm_xmmm128, VEX_Vdivps_xmm_xmm_xmmm128),
        (VEX_Vdivpd_ymm_ymm_ymmm256, VEX_Vdivps_ymm_ymm_ymmm256),
        (EVEX_Vdivpd_zmm_k1z_zmm_zmmm512b64_er, EVEX_Vdivps_zmm_k1z_zmm_zmmm512b32_er),
        (Minsd_xmm_xmmm64, Minss_xmm_xmmm32),
        (Minpd_xmm_xmmm128, Minps_xmm_xmmm128),
        (VEX_Vminsd_xmm_xmm_xmmm64, VEX_Vminss_xmm_xmm_xmmm32),
        (VEX_Vminpd_xmm_xmm_xmmm128, VEX_Vminps_xmm_xmm_xmmm128),
        (VEX_Vminpd_ymm_ymm_ymmm256, VEX_Vminps_ymm_ymm_ymmm256),
        (EVEX_Vminpd_zmm_k1z_zmm_zmmm512b64_sae, EVEX_Vminps_zmm_k1z_zmm_zmmm512b32_sae),
        (Maxsd_xmm_xmmm64, Maxss_xmm_xmmm32),
        (Maxpd_xmm_xmmm128, Maxps_xmm_xmmm128),
        (VEX_Vmaxsd_xmm_xmm_xmmm64, VEX_Vmaxss_xmm_xmm_xmmm32),
        (VEX_Vmaxpd_xmm_xmm_xmmm128, VEX_Vmaxps_xmm_xmm_xmmm128),
        (VEX_Vmaxpd_ymm_ymm_ymmm256, VEX_Vmaxps_ymm_ymm_ymmm256),
        (EVEX_Vmaxpd_zmm_k1z_zmm_zmmm512b64_sae, EVEX_Vmaxps_zmm_k1z_zmm_zmmm512b32_sae),
        (Sqrtsd_xmm_xmmm64, Sqrtss_xmm_xmmm32),
        (Sqrtpd_xmm_xmmm128, Sqrtps_xmm_xmmm128),
        (VEX_Vsqrtsd_xmm_xmm_xmmm64, VEX_Vsqrtss_xmm_xmm_xmmm32),
        (VEX_Vsqrtpd_xmm_xmmm128, VEX_Vsqrtps_xmm_xmmm128),
        (VEX_Vsqrtpd_ymm_ymmm256, VEX_Vsqrtps_ymm_ymmm256),
        (EVEX_Vsqrtpd_zmm_k1z_zmmm512b64_er, EVEX_Vsqrtps_zmm_k1z_zmmm512b32_er),
        (Andpd_xmm_xmmm128, Andps_xmm_xmmm128),
        (VEX_Vandpd_xmm_xmm_xmmm128, VEX_Vandps_xmm_xmm_xmmm128),
        (VEX_Vandpd_ymm_ymm_ymmm256, VEX_Vandps_ymm_ymm_ymmm256),
        (VEX_Vxorpd_ymm_ymm_ymmm256, VEX_Vxorps_ymm_ymm_ymmm256),
        (EVEX_Vpandq_zmm_k1z_zmm_zmmm512b64, EVEX_Vpandd_zmm_k1z_zmm_zmmm512b32),
        (EVEX_Vpxorq_zmm_k1z_zmm_zmmm512b64, EVEX_Vpxord_zmm_k1z_zmm_zmmm512b32),
        (VEX_Vgatherqpd_xmm_vm64x_xmm, VEX_Vgatherdps_xmm_vm32x_xmm),
        (VEX_Vgatherqpd_ymm_vm64y_ymm, VEX_Vgatherdps_ymm_vm32y_ymm),
        (EVEX_Vgatherqpd_zmm_k1_vm64z, EVEX_Vgatherdps_zmm_k1_vm32z),
        (VEX_Vfmadd231sd_xmm_xmm_xmmm64, VEX_Vfmadd231ss_xmm_xmm_xmmm32),
        (VEX_Vfmadd231pd_xmm_xmm_xmmm128, VEX_Vfmadd231ps_xmm_xmm_xmmm128),
        (VEX_Vfmadd231pd_ymm_ymm_ymmm256, VEX_Vfmadd231ps_ymm_ymm_ymmm256),
        (EVEX_Vfmadd231pd_zmm_k1z_zmm_zmmm512b64_er, EVEX_Vfmadd231ps_zmm_k1z_zmm_zmmm512b32_er),
        (VEX_Vfmadd213sd_xmm_xmm_xmmm64, VEX_Vfmadd213ss_xmm_xmm_xmmm32),
        (VEX_Vfmadd213pd_xmm_xmm_xmmm128, VEX_Vfmadd213ps_xmm_xmm_xmmm128),
        (VEX_Vfmadd213pd_ymm_ymm_ymmm256, VEX_Vfmadd213ps_ymm_ymm_ymmm256),
        (EVEX_Vfmadd213pd_zmm_k1z_zmm_zmmm512b64_er, EVEX_Vfmadd213ps_zmm_k1z_zmm_zmmm512b32_er),
        (Movapd_xmm_xmmm128, Movaps_xmm_xmmm128),
        (VEX_Vmovapd_xmm_xmmm128, VEX_Vmovaps_xmm_xmmm128),
        (VEX_Vmovapd_ymm_ymmm256, VEX_Vmovaps_ymm_ymmm256),
        (EVEX_Vmovapd_zmm_k1z_zmmm512, EVEX_Vmovaps_zmm_k1z_zmmm512),
        (Xorpd_xmm_xmmm128, Xorps_xmm_xmmm128),
        (VEX_Vxorpd_xmm_xmm_xmmm128, VEX_Vxorps_xmm_xmm_xmmm128),
    ]
};

/// The counterpart of a double's opcode. One without a counterpart becomes an opcode that no assembler takes.
fn single_precision(double: Code) -> Code {
    SINGLE_PRECISION.iter().find(|pair| pair.0 == double).map_or(Code::INVALID, |pair| pair.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPERATIONS: [Operation; 6] = [
        Operation::Add,
        Operation::Subtract,
        Operation::Multiply,
        Operation::Divide,
        Operation::Minimum,
        Operation::Maximum,
    ];
    const PLAIN: [Op; 9] =
        [Op::Load, Op::LoadNt, Op::Store, Op::StoreNt, Op::Move, Op::Clear, Op::Root, Op::And, Op::Xor];

    #[test]
    fn every_opcode_has_a_counterpart_of_single_precision() {
        let mut reachable = Vec::new();
        let arithmetic = OPERATIONS.map(Op::Arithmetic);
        for &op in PLAIN.iter().chain(&arithmetic) {
            for &width in Width::ALL {
                reachable.push(of_doubles(op, width, true));
                if width <= Width::W128 {
                    reachable.push(of_doubles(op, width, false));
                }
            }
        }
        for op in [Op::MultiplyAdd, Op::MultiplyInto] {
            reachable.extend(Width::ALL.iter().map(|&width| of_doubles(op, width, true)));
        }
        let gathers = Width::ALL.iter().skip(1).map(|&width| of_doubles(Op::Gather, width, true));
        reachable.extend(gathers);
        for code in &reachable {
            assert_ne!(single_precision(*code), Code::INVALID, "{code:?}");
        }
        for (double, _) in SINGLE_PRECISION {
            assert!(reachable.contains(double), "{double:?} is never used");
        }
    }

    /// By the names that the processors' makers gave them: only the letter of the precision and the size differ.
    #[test]
    fn counterparts_differ_in_nothing_but_precision() {
        for (double, single) in SINGLE_PRECISION {
            let name = |code: &Code| format!("{:?}", code.mnemonic());
            let expect = match name(double) {
                // Bits and places are as wide as elements.
                name if name.ends_with("gatherqpd") => name.replace("qpd", "dps"),
                name if name.ends_with("pandq") || name.ends_with("pxorq") => name.replace('q', "d"),
                name if name.ends_with("sd") => name.replace("sd", "ss"),
                name if name.ends_with("pd") => name.replace("pd", "ps"),
                name => name,
            };
            assert_eq!(name(single), expect);
            let operands = |code: &Code| {
                let text = format!("{code:?}");
                text.replace("m64", "m").replace("m32", "m").replace("b64", "b").replace("b32", "b")
            };
            let rest = |text: String| text.split_once("mm").map(|(_, rest)| rest.to_string());
            assert_eq!(rest(operands(single)), rest(operands(double)));
        }
    }
}
