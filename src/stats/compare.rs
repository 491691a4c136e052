//! Ratios of two medians, and the size at which one curve overtakes another.
pub fn ratio(_a: &[&[f64]], _b: &[&[f64]]) -> [f64; 3] { [0.0;3] }
pub fn crossing(_s: &[f64], _a: &[[f64; 3]], _b: &[[f64; 3]]) -> Option<[f64; 3]> { None }
