//! What is done to the pages of a mapping.

use crate::units::words;

words! {
    /// What is done to the pages of a mapping.
    PageWork, "page work" {
        /// Writes a word to each base page of a fresh mapping: faults and zeroing.
        Touch = "touch",
        /// Reads a word of each base page of a fresh mapping.
        Read = "read",
        /// Has the kernel make the pages of a fresh mapping (MADV_POPULATE_WRITE).
        Populate = "populate",
        /// Gives the pages of a touched mapping back (MADV_DONTNEED).
        Dontneed = "dontneed",
        /// Touches them again after that.
        TouchAfterDontneed = "touch-after-dontneed",
        /// Offers the pages of a touched mapping to the kernel (MADV_FREE).
        Free = "free",
        /// Touches them again after that.
        TouchAfterFree = "touch-after-free",
        /// Writes to each page of a touched mapping that a forked child shares: copy-on-write.
        CopyOnWrite = "copy-on-write",
        /// Has the kernel make huge pages of touched base pages (MADV_COLLAPSE).
        Collapse = "collapse",
        /// Unmaps a touched mapping.
        Unmap = "unmap",
        /// Reads a file into other memory without the page cache (O_DIRECT): what mapping it is held against.
        ReadDirect = "read-direct",
        /// Writes it from other memory the same way.
        WriteDirect = "write-direct",
    }
}
