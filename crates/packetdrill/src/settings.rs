//! What the head of a script sets: options, and sysctls of Linux by their meaning for the stack.

use std::time::Duration;

use stack::{Algorithm, Modules, TcpConfig};

use crate::error::Error;
use crate::syntax::{Action, Event, Script, Value};

/// Settings of one run.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) is_v6: bool,
    pub(crate) mtu: u16,
    pub(crate) tolerance_ns: u64,
    pub(crate) tcp: TcpConfig,
}

/// Sysctls that change nothing here, or that say what the stack does anyway.
const WITHOUT_EFFECT: [&str; 15] = [
    "tcp_fastopen_blackhole_timeout_sec",
    "tcp_frto",
    "tcp_dsack",
    "tcp_fack",
    "tcp_reordering",
    "tcp_tso_win_divisor",
    "tcp_ecn_option",
    "tcp_pacing_ss_ratio",
    "tcp_pacing_ca_ratio",
    "tcp_notsent_lowat",
    "tcp_fastopen_key",
    "tcp_slow_start_after_idle",
    "tcp_min_tso_segs",
    "tcp_no_metrics_save",
    "tcp_max_syn_backlog",
];

impl Settings {
    pub(crate) fn read(script: &Script) -> Result<Self, Error> {
        let mut this = Self {
            is_v6: false,
            mtu: 1500,
            tolerance_ns: 4_000_000,
            tcp: TcpConfig::default(),
        };
        for (name, value) in &script.options {
            this.option(name, value)
                .ok_or_else(|| unsupported(format!("option --{name}={value}")))?;
        }
        if let Some(command) = &script.setup {
            this.setup(command)?;
        }
        // The stack has Fast Open for all sockets or for none.
        if script.events.iter().any(uses_fast_open) {
            this.tcp.modules.insert(Modules::FAST_OPEN);
        }
        Ok(this)
    }

    fn option(&mut self, name: &str, value: &str) -> Option<()> {
        match (name, value) {
            ("ip_version", "ipv6") => self.is_v6 = true,
            ("ip_version", "ipv4" | "ipv4-mapped-ipv6") => {}
            ("mtu", mtu) => self.mtu = mtu.parse().ok()?,
            ("tolerance_usecs", us) => self.tolerance_ns = us.parse::<u64>().ok()? * 1000,
            ("local_ip" | "remote_ip" | "tcp_ts_tick_usecs" | "strict_segments", _) => {}
            _ => return None,
        }
        Some(())
    }

    /// Reads `sysctl -q net.ipv4.name=value` and the forms of the public scripts.
    fn setup(&mut self, command: &str) -> Result<(), Error> {
        let joined = command.replace("\\\n", " ");
        for line in joined.lines().flat_map(|line| line.split(';')) {
            let line = line.split(" #").next().unwrap_or_default().trim();
            let words = words(line);
            let mut words = words.iter().map(String::as_str);
            let Some(first) = words.next() else { continue };
            if first.starts_with('#') {
                continue;
            }
            if first.ends_with("common/defaults.sh") {
                self.public_defaults();
                continue;
            }
            if first != "sysctl" && !first.ends_with("set_sysctls.py") {
                return Err(unsupported(format!("command `{line}`")));
            }
            for word in words.filter(|word| !word.starts_with('-')) {
                let Some((name, value)) = word.split_once('=') else {
                    return Err(unsupported(format!("command `{line}`")));
                };
                self.set(name, value)
                    .ok_or_else(|| unsupported(format!("sysctl {word}")))?;
            }
        }
        Ok(())
    }

    /// Takes the buffer sizes and retries that the public scripts count on.
    const fn public_defaults(&mut self) {
        let tcp = &mut self.tcp;
        (tcp.receive_buffer, tcp.receive_buffer_max) = (540_000, 15 << 20);
        (tcp.send_buffer, tcp.send_buffer_max) = (256 << 10, 4 << 20);
        tcp.syn_retries = 5;
    }

    fn set(&mut self, path: &str, value: &str) -> Option<()> {
        let name = path.rsplit(['.', '/']).next()?;
        if path.starts_with("tidegate.") {
            return self.set_own(name, value);
        }
        let tcp = &mut self.tcp;
        let mut module = |module, on| tcp.modules.set(module, on);
        match name {
            "tcp_timestamps" => module(Modules::TIMESTAMPS, value != "0"),
            "tcp_sack" => module(Modules::SACK, value != "0"),
            "tcp_window_scaling" => module(Modules::WINDOW_SCALE, value != "0"),
            "tcp_syncookies" => module(Modules::SYN_COOKIES, value != "0"),
            "tcp_ecn" => module(Modules::ECN, value != "0"),
            "tcp_mtu_probing" => module(Modules::PLPMTUD, value != "0"),
            "tcp_moderate_rcvbuf" => module(Modules::AUTOTUNING, value != "0"),
            "tcp_recovery" | "tcp_early_retrans" if value == "0" => {
                module(Modules::RACK_TLP, false);
            }
            "tcp_recovery" | "tcp_early_retrans" => {}
            "tcp_fastopen" => module(Modules::FAST_OPEN, number(value)? & 3 != 0),
            "tcp_congestion_control" => {
                tcp.congestion = match value {
                    "reno" => Algorithm::NewReno,
                    "cubic" => Algorithm::Cubic,
                    "bbr" => Algorithm::Bbr,
                    _ => return None,
                }
            }
            "tcp_rmem" => (tcp.receive_buffer, tcp.receive_buffer_max) = sizes(value)?,
            "tcp_wmem" => (tcp.send_buffer, tcp.send_buffer_max) = sizes(value)?,
            "tcp_syn_retries" => tcp.syn_retries = value.parse().ok()?,
            "tcp_synack_retries" => tcp.syn_ack_retries = value.parse().ok()?,
            "tcp_retries2" => tcp.retries = value.parse().ok()?,
            "tcp_keepalive_time" => tcp.keepalive_idle = Duration::from_secs(number(value)?),
            "tcp_keepalive_intvl" => tcp.keepalive_interval = Duration::from_secs(number(value)?),
            "tcp_keepalive_probes" => tcp.keepalive_probes = value.parse().ok()?,
            "tcp_fin_timeout" => tcp.fin_wait_2 = Duration::from_secs(number(value)?),
            _ if WITHOUT_EFFECT.contains(&name) => {}
            _ => return None,
        }
        Some(())
    }

    /// Settings that have no sysctl: `tidegate.prr=0`.
    fn set_own(&mut self, name: &str, value: &str) -> Option<()> {
        let tcp = &mut self.tcp;
        let module = match name {
            "prr" => Modules::PRR,
            "undo" => Modules::UNDO,
            "pacing" => Modules::PACING,
            "hystart" => Modules::HYSTART,
            "delayed_ack" => Modules::DELAYED_ACK,
            "initial_window" => {
                tcp.initial_window = value.parse().ok()?;
                return Some(());
            }
            "time_wait" => {
                tcp.time_wait = Duration::from_secs(number(value)?);
                return Some(());
            }
            "rto_min_ms" => {
                tcp.rto_min = Duration::from_millis(number(value)?);
                return Some(());
            }
            _ => return None,
        };
        tcp.modules.set(module, value != "0");
        Some(())
    }
}

fn uses_fast_open(event: &Event) -> bool {
    let Action::Call(call) = &event.action else {
        return false;
    };
    call.arguments.iter().any(|argument| {
        matches!(argument, Value::Symbols(symbols)
            if symbols.iter().any(|name| name == "MSG_FASTOPEN" || name == "TCP_FASTOPEN"))
    })
}

fn number(value: &str) -> Option<u64> {
    match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => value.parse().ok(),
    }
}

/// Reads `minimum default maximum`.
fn sizes(value: &str) -> Option<(u32, u32)> {
    let mut sizes = value.split_whitespace().skip(1);
    Some((sizes.next()?.parse().ok()?, sizes.next()?.parse().ok()?))
}

/// Splits at spaces, but not within quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for c in line.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            c if c.is_whitespace() && !is_quoted => words.push(String::new()),
            c => {
                if let Some(word) = words.last_mut() {
                    word.push(c);
                }
            }
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

const fn unsupported(what: String) -> Error {
    Error::Unsupported { line: 1, what }
}
