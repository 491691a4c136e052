//! Memory that a program brings along for a buffer of a device, so many bytes beyond the start of a page.

const PAGE: usize = 4096;

/// Fresh memory: its pages are made when they are first touched.
pub(crate) struct HostMemory {
    words: Vec<f64>,
    first: usize,
    length: usize,
}

impl HostMemory {
    /// `bytes`, rounded up to whole words, that begin `offset` bytes into a page; whole words too.
    pub fn new(bytes: usize, offset: usize) -> Self {
        let length = bytes.div_ceil(8);
        let words = vec![0f64; length + 2 * PAGE / 8];
        let beyond = words.as_ptr() as usize % PAGE;
        let first = (PAGE - beyond + offset) / 8;
        HostMemory { words, first, length }
    }

    /// The same with its pages made.
    pub fn touched(bytes: usize, offset: usize) -> Self {
        let mut memory = HostMemory::new(bytes, offset);
        memory.words().fill(1.0);
        memory
    }

    pub fn words(&mut self) -> &mut [f64] {
        &mut self.words[self.first..][..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_begins_where_it_was_to() {
        for offset in [0, 8, 64, 4088] {
            let mut memory = HostMemory::new(100, offset);
            let words = memory.words();
            assert_eq!((words.as_ptr() as usize % PAGE, words.len()), (offset, 13));
        }
    }
}
