//! How this program is linked.

/// Whether it is linked statically, as for musl: it holds its own C library, and no loader of others. Neither MPI nor a device's driver
/// can be loaded then.
pub const IS_STATIC: bool = cfg!(target_feature = "crt-static");

/// What that means, and the cure.
pub const STATIC: &str =
    "this membound is linked statically and can load no library; use the one that is built for glibc";
