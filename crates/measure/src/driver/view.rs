//! What the host sees of a device's memory, whoever mapped it.

#![allow(unsafe_code)]

use std::ptr;

/// What is copied: any bits are one.
pub(crate) trait Word: Copy {}
impl Word for u64 {}
impl Word for f64 {}
impl Word for f32 {}

/// Memory that a driver has mapped for the host, aligned for doubles.
#[derive(Debug)]
pub(crate) struct View {
    start: usize,
    bytes: usize,
}

impl View {
    /// Of so many bytes at an address; nothing where no double can begin there.
    ///
    /// # Safety
    /// The host must reach so many bytes there for as long as this value lives, and nothing else may hold references to them. A
    /// device works on them only by commands that are waited for while this value is borrowed, or borrowed by nobody.
    pub unsafe fn new(start: usize, bytes: usize) -> Option<Self> {
        (start != 0 && start.is_multiple_of(align_of::<f64>())).then_some(View { start, bytes })
    }

    /// Where it begins.
    pub fn address(&self) -> usize {
        self.start
    }

    /// Its whole words.
    pub fn words(&mut self) -> &mut [f64] {
        // SAFETY: `new` was promised so many bytes that nothing else refers to, and has seen that a double can begin there; any
        // bits are a double. `self` stays borrowed, so no command runs meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.start as *mut f64, self.bytes / 8) }
    }

    /// Copies `from` to its start, which has room for it.
    #[cfg(feature = "vulkan")]
    pub fn write<W: Word>(&mut self, from: &[W]) {
        let bytes = size_of_val(from);
        assert!(bytes <= self.bytes);
        // SAFETY: both have so many bytes, and what is borrowed is not what was mapped.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr().cast::<u8>(), self.start as *mut u8, bytes) };
    }

    /// Copies its start to `to`.
    #[cfg(feature = "vulkan")]
    pub fn read<W: Word>(&self, to: &mut [W]) {
        let bytes = size_of_val(to);
        assert!(bytes <= self.bytes);
        // SAFETY: likewise, and any bits are a word.
        unsafe { ptr::copy_nonoverlapping(self.start as *const u8, to.as_mut_ptr().cast::<u8>(), bytes) };
    }

    /// Stores its first word, if it has one.
    pub fn store(&mut self, word: u64) {
        if let Some(first) = self.words().first_mut() {
            // SAFETY: a borrowed double; volatile, since the device is asked for it right after.
            unsafe { ptr::write_volatile(first, f64::from_bits(word)) };
        }
    }

    /// Loads its first word; 0 where it has none.
    pub fn load(&mut self) -> u64 {
        // SAFETY: a borrowed double; volatile, since the device may have stored to it.
        self.words().first().map_or(0, |first| unsafe { ptr::read_volatile(first) }.to_bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_whole_words_of_what_is_there() {
        let mut memory = [1.0, 2.0, 3.0];
        let start = memory.as_mut_ptr() as usize;
        // SAFETY: borrowed for as long as the view lives.
        let mut view = unsafe { View::new(start, 20) }.unwrap();
        assert_eq!((view.address(), view.words()), (start, &mut [1.0, 2.0][..]));
        view.store(7);
        assert_eq!((view.load(), view.words()[0].to_bits()), (7, 7));
        // SAFETY: nothing is made of what is refused.
        assert!(unsafe { View::new(start + 4, 8).is_none() && View::new(0, 8).is_none() });
    }
}
