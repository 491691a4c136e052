//! The functions of the system's OpenCL loader, behind types that own what they made.
//!
//! Handles are pointers that only the driver follows; here they are `usize`, which is passed like one. Every command is waited
//! for before the function that gave it returns: so nothing that is borrowed for a call is touched after it.
//! Values are those of Khronos' headers (cl.h, cl_ext.h), which keep them for all versions.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::sync::Arc;

use crate::driver::failure::Failure;
use crate::driver::functions::{NoLibrary, load};
use crate::driver::host_memory::HostMemory;
use crate::driver::view::{View, Word};
use crate::driver::{Access, Copying, Memory as _};
use crate::no_visit::NoVisit;
use crate::opencl::failure::{CODES, DEVICE_NOT_FOUND, PLATFORM_NOT_FOUND};
use crate::os::functions::functions;

/// The loader's name with the version of its interface; without one only where development files are installed.
pub(crate) const LIBRARY: &[&str] = if cfg!(windows) { &["OpenCL.dll"] } else { &["libOpenCL.so.1", "libOpenCL.so"] };
/// CL_SUCCESS.
const SUCCESS: i32 = 0;
/// CL_TRUE.
const BLOCKING: u32 = 1;
/// CL_FALSE.
const NOT_BLOCKING: u32 = 0;
/// CL_DEVICE_TYPE_ALL.
const ALL_TYPES: u64 = 0xffff_ffff;
/// CL_PROGRAM_BUILD_LOG.
const BUILD_LOG: u32 = 0x1183;
/// More platforms or devices than any machine has.
const MOST_HANDLES: usize = 64;
/// The longest text that is read of a driver.
const TEXT_MOST: usize = 64 << 10;

/// cl_mem_flags.
pub(crate) mod flags {
    pub const READ_WRITE: u64 = 1;
    pub const USE_HOST_PTR: u64 = 1 << 3;
    pub const ALLOC_HOST_PTR: u64 = 1 << 4;
    pub const COPY_HOST_PTR: u64 = 1 << 5;
    pub const SVM_FINE_GRAIN: u64 = 1 << 10;
}

/// cl_map_flags.
fn mapping(access: Access) -> u64 {
    match access {
        Access::Read => 1,
        Access::Write => 2,
        Access::ReadWrite => 3,
        // CL_MAP_WRITE_INVALIDATE_REGION.
        Access::Renew => 4,
    }
}

type Out<T> = *mut T;
type Data = *const c_void;
type Words = *const usize;

functions! {
    platforms = "clGetPlatformIDs"(u32, Out<usize>, Out<u32>) -> i32,
    platform_info = "clGetPlatformInfo"(usize, u32, usize, Out<c_void>, Out<usize>) -> i32,
    devices = "clGetDeviceIDs"(usize, u64, u32, Out<usize>, Out<u32>) -> i32,
    device_info = "clGetDeviceInfo"(usize, u32, usize, Out<c_void>, Out<usize>) -> i32,
    create_context = "clCreateContext"(Words, u32, Words, usize, usize, Out<i32>) -> usize,
    release_context = "clReleaseContext"(usize) -> i32,
    create_queue = "clCreateCommandQueue"(usize, usize, u64, Out<i32>) -> usize,
    release_queue = "clReleaseCommandQueue"(usize) -> i32,
    flush = "clFlush"(usize) -> i32,
    finish = "clFinish"(usize) -> i32,
    create_buffer = "clCreateBuffer"(usize, u64, usize, Out<c_void>, Out<i32>) -> usize,
    release_buffer = "clReleaseMemObject"(usize) -> i32,
    map = "clEnqueueMapBuffer"(usize, usize, u32, u64, usize, usize, u32, Words, Out<usize>, Out<i32>) -> Out<c_void>,
    unmap = "clEnqueueUnmapMemObject"(usize, usize, Out<c_void>, u32, Words, Out<usize>) -> i32,
    read = "clEnqueueReadBuffer"(usize, usize, u32, usize, usize, Out<c_void>, u32, Words, Out<usize>) -> i32,
    write = "clEnqueueWriteBuffer"(usize, usize, u32, usize, usize, Data, u32, Words, Out<usize>) -> i32,
    copy = "clEnqueueCopyBuffer"(usize, usize, usize, usize, usize, usize, u32, Words, Out<usize>) -> i32,
    create_program = "clCreateProgramWithSource"(usize, u32, *const *const c_char, Words, Out<i32>) -> usize,
    build = "clBuildProgram"(usize, u32, Words, *const c_char, usize, usize) -> i32,
    build_info = "clGetProgramBuildInfo"(usize, usize, u32, usize, Out<c_void>, Out<usize>) -> i32,
    release_program = "clReleaseProgram"(usize) -> i32,
    create_kernel = "clCreateKernel"(usize, *const c_char, Out<i32>) -> usize,
    set_argument = "clSetKernelArg"(usize, u32, usize, Data) -> i32,
    run = "clEnqueueNDRangeKernel"(usize, usize, u32, Words, Words, Words, u32, Words, Out<usize>) -> i32,
    release_kernel = "clReleaseKernel"(usize) -> i32;
    svm_alloc = "clSVMAlloc"(usize, u64, usize, u32) -> Out<c_void>,
    svm_free = "clSVMFree"(usize, Out<c_void>) -> (),
    svm_map = "clEnqueueSVMMap"(usize, u32, u64, Out<c_void>, usize, u32, Words, Out<usize>) -> i32,
    svm_unmap = "clEnqueueSVMUnmap"(usize, Out<c_void>, u32, Words, Out<usize>) -> i32,
    svm_copy = "clEnqueueSVMMemcpy"(usize, u32, Out<c_void>, Data, usize, u32, Words, Out<usize>) -> i32,
    set_svm_argument = "clSetKernelArgSVMPointer"(usize, u32, Data) -> i32,
}

fn done(call: &'static str, code: i32) -> Result<(), Failure> {
    CODES.done(call, code)
}

/// The loader, loaded for as long as the process lives: drivers leave threads behind.
#[derive(Clone, Copy)]
pub(crate) struct Loader(&'static Functions);

/// A device of some driver.
#[derive(Clone, Copy)]
pub(crate) struct Id {
    functions: &'static Functions,
    platform: usize,
    device: usize,
}

impl Loader {
    /// Loads it; or why not.
    pub fn load() -> Result<Self, NoLibrary> {
        // SAFETY: the system's loader finds them under the names that belong to OpenCL; the caller is a process of its own. The
        // standard gives each name this signature; a handle is a pointer, passed as a `usize` is.
        unsafe { load(LIBRARY, |library| Functions::find(library)) }.map(Loader)
    }

    /// The devices of all platforms, and how many platforms there are.
    pub fn devices(self) -> Result<(usize, Vec<Id>), Failure> {
        let Loader(functions) = self;
        // SAFETY: it writes at most as many handles as there is room for, and a count.
        let platforms =
            handles("clGetPlatformIDs", |room, to, count| unsafe { (functions.platforms)(room, to, count) });
        let platforms = match platforms {
            Err(Failure { code: PLATFORM_NOT_FOUND, .. }) => Vec::new(),
            platforms => platforms?,
        };
        let of_platform = |platform| {
            handles("clGetDeviceIDs", |room, to, count| {
                // SAFETY: likewise; the platform is one of this loader's.
                unsafe { (functions.devices)(platform, ALL_TYPES, room, to, count) }
            })
        };
        let all = of_all(&platforms, of_platform)?;
        let id = |(platform, device)| Id { functions, platform, device };
        Ok((platforms.len(), all.into_iter().map(id).collect()))
    }
}

/// The devices of all platforms, each after its platform. One whose driver is broken hides no other's: its failure is told where
/// there is no device at all.
fn of_all(
    platforms: &[usize],
    of_platform: impl Fn(usize) -> Result<Vec<usize>, Failure>,
) -> Result<Vec<(usize, usize)>, Failure> {
    let (mut all, mut broken) = (Vec::new(), None);
    for &platform in platforms {
        match of_platform(platform) {
            Ok(found) => all.extend(found.into_iter().map(|device| (platform, device))),
            Err(Failure { code: DEVICE_NOT_FOUND, .. }) => {}
            Err(failure) => broken = broken.or(Some(failure)),
        }
    }
    match broken {
        Some(failure) if all.is_empty() => Err(failure),
        _ => Ok(all),
    }
}

/// The handles that a function lists.
fn handles(call: &'static str, list: impl Fn(u32, *mut usize, *mut u32) -> i32) -> Result<Vec<usize>, Failure> {
    let (mut found, mut count) = (vec![0; MOST_HANDLES], 0);
    done(call, list(MOST_HANDLES as u32, found.as_mut_ptr(), &mut count))?;
    found.truncate(count as usize);
    Ok(found)
}

/// The bytes that a function tells; nothing where it fails.
fn told(tell: impl Fn(usize, *mut c_void, *mut usize) -> i32) -> Vec<u8> {
    let (mut bytes, mut length) = (vec![0u8; TEXT_MOST], 0);
    let code = tell(TEXT_MOST, bytes.as_mut_ptr().cast(), &mut length);
    bytes.truncate(if code == SUCCESS { length.min(TEXT_MOST) } else { 0 });
    bytes
}

fn text(bytes: Vec<u8>) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_string()
}

impl Id {
    fn info(self, what: u32) -> Vec<u8> {
        // SAFETY: it writes at most as many bytes as it is told there is room for, and a length; a device of this loader.
        told(|room, to, length| unsafe { (self.functions.device_info)(self.device, what, room, to, length) })
    }

    /// A text about the device; empty where there is none.
    pub fn text(self, what: u32) -> String {
        text(self.info(what))
    }

    /// Little-endian words of 32 bits about it; none where the driver does not know the question.
    pub fn words(self, what: u32) -> Vec<u32> {
        let word = |word: &[u8]| word.try_into().map_or(0, u32::from_ne_bytes);
        self.info(what).chunks_exact(4).map(word).collect()
    }

    /// A number about it; 0 where the driver does not know the question.
    pub fn number(self, what: u32) -> u64 {
        self.words(what).iter().take(2).rev().fold(0, |all, &word| all << 32 | u64::from(word))
    }

    /// A text about its platform.
    pub fn platform_text(self, what: u32) -> String {
        // SAFETY: as above; a platform of this loader.
        text(told(|room, to, length| unsafe { (self.functions.platform_info)(self.platform, what, room, to, length) }))
    }
}

/// A context with one device, and two queues whose commands run in order: all is done by the first, the second does what is
/// to be done at the same time.
pub(crate) struct Session {
    functions: &'static Functions,
    device: usize,
    context: usize,
    queue: usize,
    second: usize,
}

impl Session {
    pub fn new(id: Id) -> Result<Arc<Self>, Failure> {
        let (functions, mut code) = (id.functions, SUCCESS);
        // SAFETY: no properties and no callback, which the standard allows; one device of this loader; an int for the answer.
        let context = unsafe { (functions.create_context)(ptr::null(), 1, &id.device, 0, 0, &mut code) };
        done("clCreateContext", code)?;
        let mut session = Session { functions, device: id.device, context, queue: 0, second: 0 };
        for queue in [&mut session.queue, &mut session.second] {
            // SAFETY: the context was made with this device.
            *queue = unsafe { (functions.create_queue)(context, id.device, 0, &mut code) };
            done("clCreateCommandQueue", code)?;
        }
        Ok(Arc::new(session))
    }

    /// Does two copies at once, and waits for both.
    pub fn both(&self, copies: [Copying<'_, Memory>; 2]) -> Result<(), Failure> {
        let queues = [self.queue, self.second];
        let mut started = Ok(());
        for (copying, queue) in copies.into_iter().zip(queues) {
            // SAFETY: both queues are waited for below, whatever happens, while all is borrowed by the caller.
            started = started.and_then(|()| unsafe { copying.start(queue) });
        }
        // SAFETY: queues of this session. What is not flushed need not begin before another queue is waited for.
        let flushed = queues.map(|queue| unsafe { (self.functions.flush)(queue) });
        // SAFETY: likewise.
        let finished = queues.map(|queue| unsafe { (self.functions.finish)(queue) });
        started?;
        flushed.into_iter().try_for_each(|code| done("clFlush", code))?;
        finished.into_iter().try_for_each(|code| done("clFinish", code))
    }

    /// Waits until all commands are done.
    fn finish(&self) -> Result<(), Failure> {
        // SAFETY: a queue of this session.
        done("clFinish", unsafe { (self.functions.finish)(self.queue) })
    }

    /// Compiles `source`; where that fails, what the compiler says.
    pub fn build(self: &Arc<Self>, source: &str, options: &str) -> Result<Program, String> {
        let (mut code, line, length) = (SUCCESS, source.as_ptr().cast::<c_char>(), source.len());
        // SAFETY: one text of so many bytes, which is copied.
        let program = unsafe { (self.functions.create_program)(self.context, 1, &line, &length, &mut code) };
        done("clCreateProgramWithSource", code).map_err(|failure| failure.to_string())?;
        let program = Program { session: self.clone(), program };
        let options = CString::new(options).unwrap_or_default();
        // SAFETY: a program and the device of this session, a text that ends with 0, no callback.
        let code = unsafe { (self.functions.build)(program.program, 1, &self.device, options.as_ptr(), 0, 0) };
        done("clBuildProgram", code).map_err(|failure| format!("{failure}: {}", program.log()))?;
        Ok(program)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: all were made by `new` (a queue that was not is 0) and are released once.
        unsafe {
            for queue in [self.queue, self.second].into_iter().filter(|queue| *queue != 0) {
                (self.functions.release_queue)(queue);
            }
            (self.functions.release_context)(self.context);
        }
    }
}

/// A compiled program.
pub(crate) struct Program {
    session: Arc<Session>,
    program: usize,
}

impl Program {
    fn log(&self) -> String {
        let (functions, device) = (self.session.functions, self.session.device);
        // SAFETY: it writes at most as many bytes as it is told there is room for, and a length.
        text(told(|room, to, length| unsafe {
            (functions.build_info)(self.program, device, BUILD_LOG, room, to, length)
        }))
    }

    /// One of its kernels.
    pub fn kernel(self: &Arc<Self>, name: &'static CStr) -> Result<Kernel, Failure> {
        let mut code = SUCCESS;
        // SAFETY: a program of this session, a text that ends with 0.
        let kernel = unsafe { (self.session.functions.create_kernel)(self.program, name.as_ptr(), &mut code) };
        done("clCreateKernel", code)?;
        Ok(Kernel { program: self.clone(), name, kernel, svm: 0 })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: made by `build`, released once; its kernels hold it themselves.
        unsafe { (self.session.functions.release_program)(self.program) };
    }
}

/// An argument of a kernel.
pub(crate) enum Argument<'a> {
    Memory(&'a Memory),
    Word(u64),
    Double(f64),
    Single(f32),
}

impl Argument<'_> {
    fn is_svm(&self) -> bool {
        matches!(self, Argument::Memory(Memory { place: Place::Svm { .. }, .. }))
    }
}

/// A kernel of a program.
pub(crate) struct Kernel {
    program: Arc<Program>,
    name: &'static CStr,
    kernel: usize,
    /// Which of its arguments were shared virtual memory last: a bit for each.
    svm: u32,
}

impl Kernel {
    /// Runs so many work items, so many times one after another, and waits for them.
    ///
    /// # Safety
    /// The kernel must have these parameters, and its work items must stay within their memory.
    pub unsafe fn run(&mut self, arguments: &[Argument<'_>], items: usize, times: u64) -> Result<(), Failure> {
        let svm = (0..)
            .zip(arguments)
            .filter(|(_, argument)| argument.is_svm())
            .fold(0, |bits, (index, _)| bits | 1 << index);
        if svm != self.svm {
            // NVIDIA's driver (580.159) refuses a buffer where the same kernel was given shared virtual memory before.
            *self = self.program.kernel(self.name)?;
            self.svm = svm;
        }
        let session = self.program.session.clone();
        let Functions { run, .. } = session.functions;
        for (index, argument) in arguments.iter().enumerate() {
            self.set(index as u32, argument)?;
        }
        let (none, group) = (ptr::null(), ptr::null());
        let launch = || {
            // SAFETY: one dimension of so many items, groups as the driver likes, no events; the caller vouches for the rest.
            let code =
                unsafe { run(session.queue, self.kernel, 1, none, &items, group, 0, ptr::null(), ptr::null_mut()) };
            done("clEnqueueNDRangeKernel", code)
        };
        let launched = (0..times).try_for_each(|_| launch());
        // What was launched before a refusal runs all the same.
        let finished = session.finish();
        launched.and(finished)
    }

    fn set(&self, index: u32, argument: &Argument<'_>) -> Result<(), Failure> {
        let functions = self.program.session.functions;
        let set = |bytes: usize, data: Data| {
            // SAFETY: it copies so many bytes of a value that is borrowed; a kernel of this session.
            done("clSetKernelArg", unsafe { (functions.set_argument)(self.kernel, index, bytes, data) })
        };
        match argument {
            Argument::Word(word) => set(8, ptr::from_ref(word).cast()),
            Argument::Double(number) => set(8, ptr::from_ref(number).cast()),
            Argument::Single(number) => set(4, ptr::from_ref(number).cast()),
            Argument::Memory(Memory { place: Place::Buffer(buffer), .. }) => {
                set(size_of::<usize>(), ptr::from_ref(buffer).cast())
            }
            Argument::Memory(Memory { place: Place::Svm { address, .. }, .. }) => {
                let set = functions.set_svm_argument.ok_or_else(missing)?;
                // SAFETY: an address of shared virtual memory of this context.
                done("clSetKernelArgSVMPointer", unsafe { set(self.kernel, index, *address as Data) })
            }
        }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: made by `kernel`, released once.
        unsafe { (self.program.session.functions.release_kernel)(self.kernel) };
    }
}

/// A function of OpenCL 2.0 that the loader lacks: as if the operation were invalid.
fn missing() -> Failure {
    CODES.failure("a loader without OpenCL 2.0", -59)
}

#[derive(Debug, Clone, Copy)]
enum Place {
    Buffer(usize),
    /// Shared virtual memory. What is fine-grained needs no mapping, and counts as mapped throughout.
    Svm {
        address: usize,
        is_fine: bool,
    },
}

/// Memory of a device.
pub(crate) struct Memory {
    session: Arc<Session>,
    place: Place,
    bytes: usize,
    /// Where the host sees it, while it is mapped.
    mapped: Option<View>,
    /// What the program brought along; nobody touches it but through the mapping.
    _host: Option<HostMemory>,
}

impl Memory {
    /// A buffer. `host` is what it works on, or is filled from, where `flags` say so.
    pub fn buffer(
        session: &Arc<Session>,
        flags: u64,
        bytes: usize,
        mut host: Option<HostMemory>,
    ) -> Result<Self, Failure> {
        let mut code = SUCCESS;
        let address = host.as_mut().map_or(ptr::null_mut(), |host| host.words().as_mut_ptr());
        let has_room = host.as_mut().is_none_or(|host| 8 * host.words().len() >= bytes);
        assert!(has_room && (host.is_some() == (flags & (flags::USE_HOST_PTR | flags::COPY_HOST_PTR) != 0)));
        // SAFETY: host memory has so many bytes, as asserted, and lives as long as the buffer: it is dropped after it.
        let buffer =
            unsafe { (session.functions.create_buffer)(session.context, flags, bytes, address.cast(), &mut code) };
        done("clCreateBuffer", code)?;
        let session = session.clone();
        Ok(Memory { session, place: Place::Buffer(buffer), bytes, mapped: None, _host: host })
    }

    /// Shared virtual memory, aligned as the driver likes.
    pub fn svm(session: &Arc<Session>, flags: u64, bytes: usize) -> Result<Self, Failure> {
        let alloc = session.functions.svm_alloc.ok_or_else(missing)?;
        // SAFETY: a context of this session; it returns null where it fails.
        let address = unsafe { alloc(session.context, flags, bytes, 0) } as usize;
        if address == 0 {
            return Err(CODES.failure("clSVMAlloc", -4));
        }
        let is_fine = flags & flags::SVM_FINE_GRAIN != 0;
        // SAFETY: the driver gave so many bytes there, which stay until they are freed with this value.
        let mapped = if is_fine { unsafe { View::new(address, bytes) } } else { None };
        Ok(Memory { session: session.clone(), place: Place::Svm { address, is_fine }, bytes, mapped, _host: None })
    }

    /// # Safety
    /// Where it is not blocking, the queue must be waited for while `from` is borrowed.
    unsafe fn start_write<W: Word>(&mut self, queue: usize, blocking: u32, from: &[W]) -> Result<(), Failure> {
        let (bytes, data) = (size_of_val(from), from.as_ptr().cast::<c_void>());
        assert!(bytes <= self.bytes);
        match self.place {
            Place::Buffer(buffer) => {
                let write = self.session.functions.write;
                // SAFETY: it reads bytes that stay borrowed, no more than the buffer has.
                let code = unsafe { write(queue, buffer, blocking, 0, bytes, data, 0, ptr::null(), ptr::null_mut()) };
                done("clEnqueueWriteBuffer", code)
            }
            Place::Svm { address, .. } => self.svm_copy(queue, blocking, address as *mut c_void, data, bytes),
        }
    }

    /// # Safety
    /// Where it is not blocking, the queue must be waited for while `to` is borrowed.
    unsafe fn start_read<W: Word>(&mut self, queue: usize, blocking: u32, to: &mut [W]) -> Result<(), Failure> {
        let (bytes, data) = (size_of_val(to), to.as_mut_ptr().cast::<c_void>());
        assert!(bytes <= self.bytes);
        match self.place {
            Place::Buffer(buffer) => {
                let read = self.session.functions.read;
                // SAFETY: it writes bytes that stay borrowed, no more than the buffer has.
                let code = unsafe { read(queue, buffer, blocking, 0, bytes, data, 0, ptr::null(), ptr::null_mut()) };
                done("clEnqueueReadBuffer", code)
            }
            Place::Svm { address, .. } => self.svm_copy(queue, blocking, data, address as Data, bytes),
        }
    }

    /// # Safety
    /// The queue must be waited for while both are borrowed.
    unsafe fn start_copy(&mut self, queue: usize, to: &mut Memory) -> Result<(), Failure> {
        assert!(to.bytes >= self.bytes && Arc::ptr_eq(&self.session, &to.session));
        match (self.place, to.place) {
            (Place::Buffer(from), Place::Buffer(to)) => {
                let (copy, bytes) = (self.session.functions.copy, self.bytes);
                // SAFETY: two buffers of this session that have so many bytes, and are not one: both are borrowed.
                let code = unsafe { copy(queue, from, to, 0, 0, bytes, 0, ptr::null(), ptr::null_mut()) };
                done("clEnqueueCopyBuffer", code)
            }
            (Place::Svm { address: from, .. }, Place::Svm { address: to, .. }) => {
                self.svm_copy(queue, NOT_BLOCKING, to as *mut c_void, from as Data, self.bytes)
            }
            _ => Err(CODES.failure("a copy between a buffer and shared virtual memory", -59)),
        }
    }

    /// Both are borrowed by the callers, which wait for what is not blocking, and have so many bytes.
    fn svm_copy(&self, queue: usize, blocking: u32, to: *mut c_void, from: Data, bytes: usize) -> Result<(), Failure> {
        let copy = self.session.functions.svm_copy.ok_or_else(missing)?;
        // SAFETY: shared virtual memory of this context on one side or both, borrowed bytes on the other.
        let code = unsafe { copy(queue, blocking, to, from, bytes, 0, ptr::null(), ptr::null_mut()) };
        done("clEnqueueSVMMemcpy", code)
    }
}

impl Copying<'_, Memory> {
    /// # Safety
    /// The queue must be waited for while all of it is borrowed.
    unsafe fn start(self, queue: usize) -> Result<(), Failure> {
        // SAFETY: as the caller promises.
        unsafe {
            match self {
                Copying::Write { from, to } => to.start_write(queue, NOT_BLOCKING, from),
                Copying::Read { from, to } => from.start_read(queue, NOT_BLOCKING, to),
                Copying::Within { from, to } => from.start_copy(queue, to),
            }
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // What can't be unmapped is released nevertheless.
        let _ = self.unmap();
        let Session { functions, context, .. } = *self.session;
        match (self.place, functions.svm_free) {
            (Place::Buffer(buffer), _) => {
                let release = functions.release_buffer;
                // SAFETY: made by `buffer`, released once. No command uses it: all are waited for.
                unsafe { release(buffer) };
            }
            // SAFETY: made by `svm`, freed once; likewise.
            (Place::Svm { address, .. }, Some(free)) => unsafe { free(context, address as *mut c_void) },
            (Place::Svm { .. }, None) => {}
        }
        // The driver may free later what it was told to release; it must be done before the host's memory goes.
        let _ = self.session.finish();
    }
}

impl crate::driver::Memory for Memory {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn view(&mut self) -> Option<&mut View> {
        self.mapped.as_mut()
    }

    fn map(&mut self, access: Access) -> Result<(), NoVisit> {
        let Session { functions, queue, .. } = *self.session;
        let flags = mapping(access);
        if self.mapped.is_some() {
            return Ok(());
        }
        let address = match self.place {
            Place::Buffer(buffer) => {
                let (mut code, map, bytes) = (SUCCESS, functions.map, self.bytes);
                // SAFETY: a buffer of this session, of so many bytes; no events.
                let address = unsafe {
                    map(queue, buffer, BLOCKING, flags, 0, bytes, 0, ptr::null(), ptr::null_mut(), &mut code)
                } as usize;
                done("clEnqueueMapBuffer", code)?;
                address
            }
            Place::Svm { address, .. } => {
                let map = functions.svm_map.ok_or_else(missing)?;
                let to = address as *mut c_void;
                // SAFETY: shared virtual memory of this context, of so many bytes; no events.
                let code = unsafe { map(queue, BLOCKING, flags, to, self.bytes, 0, ptr::null(), ptr::null_mut()) };
                done("clEnqueueSVMMap", code)?;
                address
            }
        };
        // SAFETY: the driver has mapped so many bytes there, until they are unmapped and this value forgets them.
        self.mapped = unsafe { View::new(address, self.bytes) };
        self.mapped.is_some().then_some(()).ok_or_else(|| CODES.failure("clEnqueueMapBuffer", -12).into())
    }

    /// Of what is fine-grained nothing is to be done.
    fn unmap(&mut self) -> Result<(), NoVisit> {
        let Session { functions, queue, .. } = *self.session;
        let Some(address) = self.mapped.as_ref().map(View::address) else { return Ok(()) };
        match self.place {
            Place::Buffer(buffer) => {
                let (unmap, from) = (functions.unmap, address as *mut c_void);
                // SAFETY: the address at which this buffer is mapped; nobody borrows it, since `self` is borrowed whole.
                done("clEnqueueUnmapMemObject", unsafe {
                    unmap(queue, buffer, from, 0, ptr::null(), ptr::null_mut())
                })?;
            }
            Place::Svm { is_fine: true, .. } => return Ok(()),
            Place::Svm { .. } => {
                let unmap = functions.svm_unmap.ok_or_else(missing)?;
                let from = address as *mut c_void;
                // SAFETY: likewise.
                done("clEnqueueSVMUnmap", unsafe { unmap(queue, from, 0, ptr::null(), ptr::null_mut()) })?;
            }
        }
        self.mapped = None;
        Ok(self.session.finish()?)
    }

    fn write<W: Word>(&mut self, from: &[W]) -> Result<(), NoVisit> {
        // SAFETY: it is blocking.
        unsafe { self.start_write(self.session.queue, BLOCKING, from) }?;
        Ok(self.session.finish()?)
    }

    fn read<W: Word>(&mut self, to: &mut [W]) -> Result<(), NoVisit> {
        // SAFETY: it is blocking.
        unsafe { self.start_read(self.session.queue, BLOCKING, to) }?;
        Ok(self.session.finish()?)
    }

    fn copy(&mut self, to: &mut Memory) -> Result<(), NoVisit> {
        // SAFETY: it is waited for right after.
        let started = unsafe { self.start_copy(self.session.queue, to) };
        self.session.finish()?;
        Ok(started?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_platform_hides_no_other() {
        let list = |platform| match platform {
            1 => Ok(vec![10, 11]),
            2 => Err(CODES.failure("clGetDeviceIDs", DEVICE_NOT_FOUND)),
            other => Err(CODES.failure("clGetDeviceIDs", -(other as i32))),
        };
        let all = |platforms: &[usize]| of_all(platforms, list).map_err(|failure| failure.code);
        assert_eq!(all(&[30, 2, 1]), Ok(vec![(1, 10), (1, 11)]));
        assert_eq!(all(&[2]), Ok(vec![]));
        assert_eq!(all(&[2, 30, 40]), Err(-30), "the first failure");
    }
}
