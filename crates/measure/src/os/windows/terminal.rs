//! The terminal that text goes to.

#![allow(unsafe_code)]

use windows_sys::Win32::System::Console::{
    CONSOLE_SCREEN_BUFFER_INFO, GetConsoleScreenBufferInfo, GetStdHandle, STD_OUTPUT_HANDLE,
};

/// Columns of the terminal behind stdout; absent where it is none.
pub fn columns() -> Option<usize> {
    // SAFETY: all-zero is a valid value of the struct, which the call fills where there is a console.
    let (is_told, about) = unsafe {
        let mut about: CONSOLE_SCREEN_BUFFER_INFO = std::mem::zeroed();
        (GetConsoleScreenBufferInfo(GetStdHandle(STD_OUTPUT_HANDLE), &mut about) != 0, about)
    };
    let columns = i32::from(about.srWindow.Right) - i32::from(about.srWindow.Left) + 1;
    usize::try_from(columns).ok().filter(|columns| is_told && *columns > 1)
}
