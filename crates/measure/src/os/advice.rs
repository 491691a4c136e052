//! What a system is asked to do with the pages of a mapping.

/// What the kernel is asked to do with the pages of a mapping (madvise).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Make them (MADV_POPULATE_WRITE, Linux 5.14).
    Populate,
    /// Take them back at once (MADV_DONTNEED).
    Dontneed,
    /// Take them back when memory is short (MADV_FREE, Linux 4.5).
    Free,
    /// Make no huge pages of them (MADV_NOHUGEPAGE).
    NoHuge,
    /// Make them huge pages when it pleases (MADV_HUGEPAGE). Only this undoes [`Advice::NoHuge`], which
    /// [`Advice::Collapse`] respects.
    Huge,
    /// Make them huge pages now (MADV_COLLAPSE, Linux 6.1).
    Collapse,
    /// Let forked children share them (MADV_DOFORK).
    Fork,
    /// Hide them from forked children (MADV_DONTFORK).
    NoFork,
}
