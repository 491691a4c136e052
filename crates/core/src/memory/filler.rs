//! How page cache is filled.

use crate::units::words;

words! {
    /// How a file's pages get into the page cache.
    Filler, "filler" {
        /// They are written to the disk, which takes as long as the disk takes; then they stay.
        Write = "write",
        /// They are read where the file is a hole: the same pages, without the disk.
        SparseRead = "sparse-read",
    }
}
