//! A forwarder on libpcap, the peer that IO-8 measures against: one thread, immediate mode, frames of each
//! device sent on the other unchanged.
//!
//! The library is loaded when the forwarder starts, so that nothing needs it to build.

use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use crate::netns::Namespace;

/// Frames that one call delivers at most.
const BURST: c_int = 64;
/// Kernel buffer of each direction, bytes.
const BUFFER_BYTES: c_int = 16 << 20;
const PCAP_D_IN: c_int = 1;

/// Why the forwarder does not run.
#[derive(Debug, thiserror::Error)]
pub enum LibpcapError {
    /// The library is not installed.
    #[error("libpcap.so.0.8 is not there (install the Debian package libpcap0.8)")]
    NoLibrary,
    /// The library lacks a function.
    #[error("libpcap has no function {0}")]
    NoFunction(&'static str),
    /// The library refused a device.
    #[error("libpcap cannot open {device}: {reason}")]
    Open {
        /// The device.
        device: String,
        /// What the library says.
        reason: String,
    },
    /// The thread could not enter the namespace, or be made.
    #[error("cannot start the forwarder's thread: {0}")]
    Thread(String),
}

/// `struct pcap_pkthdr` on 64-bit Linux.
#[repr(C)]
struct PacketHeader {
    time: libc::timeval,
    captured_bytes: u32,
    bytes: u32,
}

/// `pcap_t`, of which only pointers are used.
#[repr(C)]
struct Pcap {
    _opaque: [u8; 0],
}

type Handler = extern "C" fn(*mut c_uchar, *const PacketHeader, *const c_uchar);

/// The functions of the library that are used.
#[derive(Clone, Copy)]
struct Library {
    create: unsafe extern "C" fn(*const c_char, *mut c_char) -> *mut Pcap,
    set_int: [unsafe extern "C" fn(*mut Pcap, c_int) -> c_int; 4],
    activate: unsafe extern "C" fn(*mut Pcap) -> c_int,
    setdirection: unsafe extern "C" fn(*mut Pcap, c_int) -> c_int,
    setnonblock: unsafe extern "C" fn(*mut Pcap, c_int, *mut c_char) -> c_int,
    fileno: unsafe extern "C" fn(*mut Pcap) -> c_int,
    dispatch: unsafe extern "C" fn(*mut Pcap, c_int, Handler, *mut c_uchar) -> c_int,
    inject: unsafe extern "C" fn(*mut Pcap, *const c_void, usize) -> c_int,
    geterr: unsafe extern "C" fn(*mut Pcap) -> *mut c_char,
    close: unsafe extern "C" fn(*mut Pcap),
}

impl Library {
    #[expect(
        clippy::missing_transmute_annotations,
        reason = "the type of each function is that of the field beside its name"
    )]
    fn load() -> Result<Self, LibpcapError> {
        // SAFETY: the name is a C string; libpcap has no initialiser that does harm. Never unloaded, so
        // that its functions stay valid.
        let library = unsafe { libc::dlopen(c"libpcap.so.0.8".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Err(LibpcapError::NoLibrary);
        }
        let symbol = |name: &'static CStr| {
            // SAFETY: `library` is the handle of a loaded library, `name` a C string.
            let address = unsafe { libc::dlsym(library, name.as_ptr()) };
            match address.is_null() {
                true => Err(LibpcapError::NoFunction(name.to_str().unwrap_or_default())),
                false => Ok(address),
            }
        };
        /// Looks a function up; its type is that of the field that it is stored in.
        macro_rules! function {
            ($name:literal) => {{
                let address = symbol($name)?;
                // SAFETY: the field's type is the function's declaration in pcap.h.
                unsafe { core::mem::transmute::<*mut c_void, _>(address) }
            }};
        }
        Ok(Self {
            create: function!(c"pcap_create"),
            set_int: [
                function!(c"pcap_set_snaplen"),
                function!(c"pcap_set_promisc"),
                function!(c"pcap_set_immediate_mode"),
                function!(c"pcap_set_buffer_size"),
            ],
            activate: function!(c"pcap_activate"),
            setdirection: function!(c"pcap_setdirection"),
            setnonblock: function!(c"pcap_setnonblock"),
            fileno: function!(c"pcap_fileno"),
            dispatch: function!(c"pcap_dispatch"),
            inject: function!(c"pcap_inject"),
            geterr: function!(c"pcap_geterr"),
            close: function!(c"pcap_close"),
        })
    }
}

/// One device, open for capture and injection.
struct Device {
    library: Library,
    handle: *mut Pcap,
}

impl Device {
    fn open(library: Library, name: &str) -> Result<Self, LibpcapError> {
        let failed = |reason: String| LibpcapError::Open {
            device: name.to_owned(),
            reason,
        };
        let c_name = CString::new(name).map_err(|error| failed(error.to_string()))?;
        let mut message = [0 as c_char; 256];
        // SAFETY: a C string, and a buffer of PCAP_ERRBUF_SIZE bytes.
        let handle = unsafe { (library.create)(c_name.as_ptr(), message.as_mut_ptr()) };
        if handle.is_null() {
            return Err(failed(text(message.as_ptr())));
        }
        let device = Self { library, handle };
        for (set, value) in library.set_int.iter().zip([65535, 1, 1, BUFFER_BYTES]) {
            // SAFETY: `handle` is a live, not yet activated handle.
            unsafe { set(handle, value) };
        }
        // SAFETY: as above. Positive results are warnings.
        if unsafe { (library.activate)(handle) } < 0 {
            return Err(failed(device.error()));
        }
        // SAFETY: `handle` is activated.
        if unsafe { (library.setdirection)(handle, PCAP_D_IN) } < 0 {
            return Err(failed(device.error()));
        }
        // SAFETY: `handle` is activated; the buffer has PCAP_ERRBUF_SIZE bytes.
        if unsafe { (library.setnonblock)(handle, 1, message.as_mut_ptr()) } < 0 {
            return Err(failed(text(message.as_ptr())));
        }
        Ok(device)
    }

    fn error(&self) -> String {
        // SAFETY: `handle` is live; the message lives as long.
        text(unsafe { (self.library.geterr)(self.handle) })
    }

    fn fd(&self) -> c_int {
        // SAFETY: `handle` is live and activated.
        unsafe { (self.library.fileno)(self.handle) }
    }

    /// Sends a burst of what arrived here on `to`; returns how many frames arrived.
    fn forward(&self, to: &Device, lost: &AtomicU64) -> c_int {
        let mut target = Target { device: to, lost };
        let user = (&raw mut target).cast();
        // SAFETY: `handle` is live; `send` gets `user` back, which outlives the call.
        unsafe { (self.library.dispatch)(self.handle, BURST, send, user) }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: `handle` is live and not used after.
        unsafe { (self.library.close)(self.handle) };
    }
}

/// Where [`send`] sends.
struct Target<'a> {
    device: &'a Device,
    lost: &'a AtomicU64,
}

/// Called by libpcap for every frame.
extern "C" fn send(user: *mut c_uchar, header: *const PacketHeader, bytes: *const c_uchar) {
    // SAFETY: `user` is the `Target` that `forward` passed, alive during its call.
    let target = unsafe { &*user.cast::<Target<'_>>() };
    // SAFETY: libpcap passes a valid header.
    let captured = unsafe { (*header).captured_bytes } as usize;
    let Device { library, handle } = target.device;
    // SAFETY: `handle` is live; `bytes` has `captured` bytes.
    let sent = unsafe { (library.inject)(*handle, bytes.cast(), captured) };
    if sent < 0 {
        target.lost.fetch_add(1, Ordering::Relaxed);
    }
}

fn text(message: *const c_char) -> String {
    if message.is_null() {
        return String::new();
    }
    // SAFETY: libpcap's messages are C strings.
    let message = unsafe { CStr::from_ptr(message) };
    message.to_string_lossy().into_owned()
}

/// A running forwarder; it stops when it is dropped.
#[derive(Debug)]
pub struct Forwarder {
    stop: Arc<AtomicBool>,
    lost: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Forwarder {
    /// Starts to forward between two devices of a namespace, in a thread pinned to `cpu`.
    ///
    /// # Errors
    /// libpcap is missing or refuses a device.
    pub fn start(
        namespace: &Namespace,
        devices: [&str; 2],
        cpu: Option<usize>,
    ) -> Result<Self, LibpcapError> {
        let library = Library::load()?;
        let stop = Arc::new(AtomicBool::new(false));
        let lost = Arc::new(AtomicU64::new(0));
        let (ready, started) = std::sync::mpsc::channel();
        let fd = namespace
            .fd()
            .try_clone_to_owned()
            .map_err(|error| LibpcapError::Thread(error.to_string()))?;
        let names = devices.map(str::to_owned);
        let (stop_seen, lost_seen) = (Arc::clone(&stop), Arc::clone(&lost));
        let body = move || {
            let open = || -> Result<[Device; 2], LibpcapError> {
                crate::sys::enter_network_namespace(std::os::fd::AsFd::as_fd(&fd))
                    .and_then(|()| cpu.map_or(Ok(()), crate::machine::pin_to_cpu))
                    .map_err(|error| LibpcapError::Thread(error.to_string()))?;
                let [first, second] = &names;
                Ok([
                    Device::open(library, first)?,
                    Device::open(library, second)?,
                ])
            };
            match open() {
                Ok(devices) => {
                    let _ = ready.send(Ok(()));
                    forward_until(&devices, &stop_seen, &lost_seen);
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        };
        let thread = std::thread::Builder::new()
            .name("libpcap".into())
            .spawn(body)
            .map_err(|error| LibpcapError::Thread(error.to_string()))?;
        let forwarder = Self {
            stop,
            lost,
            thread: Some(thread),
        };
        started
            .recv()
            .unwrap_or_else(|error| Err(LibpcapError::Thread(error.to_string())))?;
        Ok(forwarder)
    }

    /// Returns how many frames the kernel did not take for sending.
    pub fn lost_pkts(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn forward_until(devices: &[Device; 2], stop: &AtomicBool, lost: &AtomicU64) {
    let mut waiting = [0, 1].map(|index: usize| libc::pollfd {
        fd: devices[index].fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    while !stop.load(Ordering::Relaxed) {
        let there = devices[0].forward(&devices[1], lost);
        let back = devices[1].forward(&devices[0], lost);
        if there <= 0 && back <= 0 {
            // SAFETY: two live `pollfd`.
            unsafe { libc::poll(waiting.as_mut_ptr(), 2, 10) };
        }
    }
}
