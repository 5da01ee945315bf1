//! A bundle from Rust through the C ABI, for models of one input and one output:
//!
//!     rustc -O example.rs -L build -l static=vta -l m
//!     ./example FOLDER INPUT.bin OUTPUT.bin
//!
//! The types repeat vta_runtime.h and vta_sim.h; bindgen writes the same.
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::{env, fs, process, ptr};

#[repr(C)]
struct Error {
    status: c_int,
    message: [c_char; 256],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Machine {
    fields: [u32; 18],
}

#[repr(C)]
struct Source {
    state: *mut c_void,
    size: *const c_void,
    read: *const c_void,
}

#[repr(C)]
struct Driver {
    interface_version: u32,
    state: *mut c_void,
    functions: [*const c_void; 12],
}

#[repr(C)]
#[derive(Default)]
struct Info {
    version: u32,
    machine: Machine,
    host_bytes: u64,
    device_bytes: u64,
}

#[repr(C)]
struct Tensor {
    name: *const c_char,
    dtype: c_int,
    rank: u32,
    shape: [u32; 8],
    bytes: u64,
    offset: u64,
}

extern "C" {
    fn vta_folder(source: *mut Source, path: *const c_char);
    fn vta_look(source: *const Source, info: *mut Info, error: *mut Error) -> c_int;
    fn vta_open(
        model: *mut *mut c_void, source: *const Source, driver: *const Driver, memory: *mut u8,
        bytes: usize, error: *mut Error,
    ) -> c_int;
    fn vta_input_count(model: *const c_void) -> usize;
    fn vta_output_count(model: *const c_void) -> usize;
    fn vta_input(model: *const c_void, index: usize) -> *const Tensor;
    fn vta_output(model: *const c_void, index: usize) -> *const Tensor;
    fn vta_run(
        model: *mut c_void, inputs: *const *const u8, outputs: *const *mut u8, timeout_ms: u32,
        error: *mut Error,
    ) -> c_int;
    fn vta_close(model: *mut c_void);
    fn vta_sim_bytes(machine: *const Machine, dram_bytes: u64) -> u64;
    fn vta_sim_init(
        machine: *const Machine, dram_bytes: u64, memory: *mut u8, bytes: usize,
    ) -> *mut c_void;
    fn vta_sim_driver(sim: *mut c_void, driver: *mut Driver);
}

/// What a call of the runtime gave: nothing, or its message.
fn checked(status: c_int, error: &Error) -> Result<(), String> {
    if status == 0 {
        return Ok(());
    }
    // The runtime ends every message with a zero.
    let message = unsafe { CStr::from_ptr(error.message.as_ptr()) };
    Err(message.to_string_lossy().into_owned())
}

fn run(folder: &str, input: &[u8]) -> Result<Vec<u8>, String> {
    let path = CString::new(folder).map_err(|error| error.to_string())?;
    let mut error = Error { status: 0, message: [0; 256] };
    let mut source = Source { state: ptr::null_mut(), size: ptr::null(), read: ptr::null() };
    let mut info = Info::default();
    let mut driver =
        Driver { interface_version: 0, state: ptr::null_mut(), functions: [ptr::null(); 12] };
    let mut model = ptr::null_mut();
    // Path, host and board outlive the model, which is closed before they are dropped.
    unsafe {
        vta_folder(&mut source, path.as_ptr());
        checked(vta_look(&source, &mut info, &mut error), &error)?;
        let mut host = vec![0u8; info.host_bytes as usize];
        let mut board = vec![0u8; vta_sim_bytes(&info.machine, info.device_bytes) as usize];
        let sim = vta_sim_init(&info.machine, info.device_bytes, board.as_mut_ptr(), board.len());
        if sim.is_null() {
            return Err("the simulator has no such machine".to_string());
        }
        vta_sim_driver(sim, &mut driver);
        let opened =
            vta_open(&mut model, &source, &driver, host.as_mut_ptr(), host.len(), &mut error);
        checked(opened, &error)?;
        let result = run_once(model, input, &mut error);
        vta_close(model);
        result
    }
}

/// # Safety
/// `model` is open.
unsafe fn run_once(
    model: *mut c_void, input: &[u8], error: &mut Error,
) -> Result<Vec<u8>, String> {
    if vta_input_count(model) != 1 || vta_output_count(model) != 1 {
        return Err("this example runs models of one input and one output".to_string());
    }
    let wanted = (*vta_input(model, 0)).bytes;
    if input.len() as u64 != wanted {
        return Err(format!("the input takes {wanted} bytes"));
    }
    let mut output = vec![0u8; (*vta_output(model, 0)).bytes as usize];
    let (inputs, outputs) = ([input.as_ptr()], [output.as_mut_ptr()]);
    checked(vta_run(model, inputs.as_ptr(), outputs.as_ptr(), 60_000, error), error)?;
    Ok(output)
}

fn main() {
    let args: Vec<String> = env::args().collect();
    if args.len() != 4 {
        eprintln!("usage: example FOLDER INPUT.bin OUTPUT.bin");
        process::exit(9);
    }
    let done = fs::read(&args[2])
        .map_err(|error| error.to_string())
        .and_then(|input| run(&args[1], &input))
        .and_then(|output| fs::write(&args[3], output).map_err(|error| error.to_string()));
    if let Err(message) = done {
        eprintln!("error: {message}");
        process::exit(1);
    }
}
