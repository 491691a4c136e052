//! The terminal that text goes to.

#![allow(unsafe_code)]

/// Columns of the terminal behind stdout; absent where it is none, or has no size.
pub fn columns() -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel writes a `winsize` where one is, and nothing where the descriptor is no terminal.
    let told = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    (told == 0 && size.ws_col > 0).then_some(usize::from(size.ws_col))
}
