//! Every state of RFC 9293 against every kind of segment (3.10.7): one script each, made from the tables below, with the
//! stricter checks of RFC 5961 and RFC 1337.

/// Options are of no matter here.
const SETUP: &str =
    "`sysctl -q net.ipv4.tcp_timestamps=0 net.ipv4.tcp_sack=0 net.ipv4.tcp_window_scaling=0`\n";

const LISTEN: &str = "\
 0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 8) = 0
";
const SYN_RECEIVED: &str = "\
+0 < S 0:0(0) win 8192 <mss 1460>
+0 > S. 0:0(0) ack 1 <mss 1460>
";
const ESTABLISHED: &str = "\
+.01 < . 1:1(0) ack 1 win 8192
+0 accept(3, ..., ...) = 4
";
const CLOSE: &str = "+0 shutdown(4, SHUT_WR) = 0\n";

/// A synchronized state: its numbers, and how to get there from ESTABLISHED.
struct State {
    name: &'static str,
    path: &'static str,
    /// SND.UNA, SND.NXT and RCV.NXT.
    una: u32,
    next: u32,
    receive: u32,
}

const fn state(name: &'static str, path: &'static str, una: u32, next: u32, receive: u32) -> State {
    State {
        name,
        path,
        una,
        next,
        receive,
    }
}

const STATES: [State; 7] = [
    state("ESTABLISHED", "", 1, 1, 1),
    state("FIN_WAIT1", "> F. 1:1(0) ack 1", 1, 2, 1),
    state(
        "FIN_WAIT2",
        "> F. 1:1(0) ack 1\n+.01 < . 1:1(0) ack 2 win 8192",
        2,
        2,
        1,
    ),
    state(
        "CLOSE_WAIT",
        "< F. 1:1(0) ack 1 win 8192\n+0 > . 1:1(0) ack 2",
        1,
        1,
        2,
    ),
    state(
        "CLOSING",
        "> F. 1:1(0) ack 1\n+.01 < F. 1:1(0) ack 1 win 8192\n+0 > . 2:2(0) ack 2",
        1,
        2,
        2,
    ),
    state(
        "LAST_ACK",
        "< F. 1:1(0) ack 1 win 8192\n+0 > . 1:1(0) ack 2\n+0 shutdown(4, SHUT_WR) = 0\n+0 > F. 1:1(0) ack 2",
        1,
        2,
        2,
    ),
    state(
        "TIME_WAIT",
        "> F. 1:1(0) ack 1\n+.01 < . 1:1(0) ack 2 win 8192\n+0 < F. 1:1(0) ack 2 win 8192\n+0 > . 2:2(0) ack 2",
        2,
        2,
        2,
    ),
];

/// A kind of segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    ResetExact,
    ResetInWindow,
    ResetBefore,
    ResetBeyond,
    Syn,
    SynBefore,
    SynAck,
    NoFlags,
    DataWithoutAck,
    AckAgain,
    AckOfAll,
    AckOfFuture,
    AckOfPast,
    Data,
    DataBefore,
    DataBeyond,
    Fin,
    FinAndAckOfAll,
    FinBeyondHole,
    FinBefore,
}

const KINDS: [Kind; 20] = [
    Kind::ResetExact,
    Kind::ResetInWindow,
    Kind::ResetBefore,
    Kind::ResetBeyond,
    Kind::Syn,
    Kind::SynBefore,
    Kind::SynAck,
    Kind::NoFlags,
    Kind::DataWithoutAck,
    Kind::AckAgain,
    Kind::AckOfAll,
    Kind::AckOfFuture,
    Kind::AckOfPast,
    Kind::Data,
    Kind::DataBefore,
    Kind::DataBeyond,
    Kind::Fin,
    Kind::FinAndAckOfAll,
    Kind::FinBeyondHole,
    Kind::FinBefore,
];

impl State {
    fn script(&self, kind: Kind) -> String {
        let (una, next, receive) = (self.una, self.next, self.receive);
        let segment = |flags: &str, seq: u32, bytes: u32, ack: Option<u32>| {
            let ack = ack.map_or_else(String::new, |ack| format!(" ack {ack}"));
            let end = seq.wrapping_add(bytes);
            format!("+.01 < {flags} {seq}:{end}({bytes}){ack} win 8192\n")
        };
        let before = receive.wrapping_sub(5000);
        let beyond = receive + 200_000;
        let input = match kind {
            Kind::ResetExact => segment("R", receive, 0, None),
            Kind::ResetInWindow => segment("R", receive + 10, 0, None),
            Kind::ResetBefore => segment("R", before, 0, None),
            Kind::ResetBeyond => segment("R", beyond, 0, None),
            Kind::Syn => segment("S", receive, 0, None),
            Kind::SynBefore => segment("S", before, 0, None),
            Kind::SynAck => segment("S.", receive, 0, Some(next)),
            Kind::NoFlags => segment("-", receive, 0, None),
            Kind::DataWithoutAck => segment("P", receive, 1, None),
            Kind::AckAgain => segment(".", receive, 0, Some(una)),
            Kind::AckOfAll => segment(".", receive, 0, Some(next)),
            Kind::AckOfFuture => segment(".", receive, 0, Some(next + 1000)),
            Kind::AckOfPast => segment(".", receive, 0, Some(una.wrapping_sub(100_000))),
            Kind::Data => segment(".", receive, 10, Some(una)),
            Kind::DataBefore => segment(".", before, 10, Some(una)),
            Kind::DataBeyond => segment(".", beyond, 10, Some(una)),
            Kind::Fin => segment("F.", receive, 0, Some(una)),
            Kind::FinAndAckOfAll => segment("F.", receive, 0, Some(next)),
            Kind::FinBeyondHole => segment("F.", receive + 10, 0, Some(una)),
            Kind::FinBefore => segment("F.", before, 0, Some(una)),
        };
        let (answer, after) = self.outcome(kind);
        let path = match (self.name, self.path) {
            (_, "") => String::new(),
            ("CLOSE_WAIT" | "LAST_ACK", path) => format!("+.01 {path}\n"),
            (_, path) => format!("{CLOSE}+0 {path}\n"),
        };
        let answer = answer.map_or_else(String::new, |ack| {
            // A delayed acknowledgement is one, too.
            format!("+0~+.04 > . {next}:{next}(0) ack {ack}\n")
        });
        format!(
            "{SETUP}{LISTEN}{SYN_RECEIVED}{ESTABLISHED}{path}\
             +0 %{{ assert tcpi_state == TCP_{} }}%\n{input}{answer}\
             +0 %{{ assert tcpi_state == TCP_{after} }}%\n",
            self.name
        )
    }

    /// Returns what is acknowledged, if anything is sent, and the state after.
    fn outcome(&self, kind: Kind) -> (Option<u32>, &'static str) {
        let stays = self.name;
        let receive = self.receive;
        let may_receive = matches!(stays, "ESTABLISHED" | "FIN_WAIT1" | "FIN_WAIT2");
        let acked = match stays {
            "FIN_WAIT1" => "FIN_WAIT2",
            "CLOSING" => "TIME_WAIT",
            "LAST_ACK" => "CLOSE",
            other => other,
        };
        let is_waiting = stays == "TIME_WAIT";
        match kind {
            // RFC 1337: TIME-WAIT does not die of resets.
            Kind::ResetExact | Kind::ResetInWindow if is_waiting => (None, stays),
            Kind::ResetExact => (None, "CLOSE"),
            // RFC 5961 3.2 and 4.2: a challenge.
            Kind::ResetInWindow | Kind::Syn | Kind::SynAck => (Some(receive), stays),
            Kind::ResetBefore | Kind::ResetBeyond => (None, stays),
            // First check: not acceptable, acknowledge.
            Kind::SynBefore | Kind::DataBefore | Kind::DataBeyond | Kind::FinBefore => {
                (Some(receive), stays)
            }
            // Fifth check: without ACK it is dropped. A session in TIME_WAIT keeps no window: it answers what has length.
            Kind::NoFlags => (None, stays),
            Kind::DataWithoutAck if is_waiting => (Some(receive), stays),
            Kind::DataWithoutAck | Kind::AckAgain => (None, stays),
            Kind::AckOfAll => (None, acked),
            Kind::AckOfFuture | Kind::AckOfPast if is_waiting => (None, stays),
            // RFC 5961 5.2.
            Kind::AckOfFuture | Kind::AckOfPast => (Some(receive), stays),
            Kind::Data if may_receive => (Some(receive + 10), stays),
            Kind::Data => (Some(receive), stays),
            Kind::FinBeyondHole => (Some(receive), stays),
            Kind::Fin => match stays {
                "ESTABLISHED" => (Some(receive + 1), "CLOSE_WAIT"),
                "FIN_WAIT1" => (Some(receive + 1), "CLOSING"),
                "FIN_WAIT2" => (Some(receive + 1), "TIME_WAIT"),
                _ => (Some(receive), stays),
            },
            Kind::FinAndAckOfAll => match stays {
                "ESTABLISHED" => (Some(receive + 1), "CLOSE_WAIT"),
                "FIN_WAIT1" | "FIN_WAIT2" => (Some(receive + 1), "TIME_WAIT"),
                "CLOSING" => (Some(receive), "TIME_WAIT"),
                // Its FIN is old, but our FIN is acknowledged.
                "LAST_ACK" => (None, "CLOSE"),
                _ => (Some(receive), stays),
            },
        }
    }
}

/// CLOSED, LISTEN, SYN-SENT and SYN-RECEIVED: how to get there, a segment, and what follows.
const OPENING: [(&str, &str); 36] = [
    // 3.10.7.1
    ("closed: reset", "+.1 < R 7:7(0) win 0\n"),
    ("closed: ack", "+.1 < . 7:7(0) ack 9 win 0\n+0 > R 9:9(0)\n"),
    (
        "closed: syn",
        "+.1 < S 7:7(0) win 0\n+0 > R. 0:0(0) ack 8\n",
    ),
    (
        "closed: data",
        "+.1 < P 7:17(10) win 0\n+0 > R. 0:0(0) ack 17\n",
    ),
    (
        "closed: fin",
        "+.1 < F 7:7(0) win 0\n+0 > R. 0:0(0) ack 8\n",
    ),
    (
        "closed: fin, ack",
        "+.1 < F. 7:7(0) ack 9 win 0\n+0 > R 9:9(0)\n",
    ),
    (
        "closed: syn, ack",
        "+.1 < S. 7:7(0) ack 9 win 0\n+0 > R 9:9(0)\n",
    ),
    ("closed: reset, ack", "+.1 < R. 7:7(0) ack 9 win 0\n"),
    // 3.10.7.2
    ("listen: reset", "+.1 < R 7:7(0) win 0\n"),
    ("listen: ack", "+.1 < . 7:7(0) ack 9 win 0\n+0 > R 9:9(0)\n"),
    (
        "listen: syn, ack",
        "+.1 < S. 7:7(0) ack 9 win 0\n+0 > R 9:9(0)\n",
    ),
    ("listen: reset, ack", "+.1 < R. 7:7(0) ack 9 win 0\n"),
    ("listen: fin without ack", "+.1 < F 7:7(0) win 0\n"),
    ("listen: data without ack", "+.1 < P 7:17(10) win 0\n"),
    (
        "listen: fin, ack",
        "+.1 < F. 7:7(0) ack 9 win 0\n+0 > R 9:9(0)\n",
    ),
    (
        "listen: syn",
        "+.1 < S 7:7(0) win 8192 <mss 1000>\n+0 > S. 0:0(0) ack 8 <mss 1460>\n+.1 < R 1:1(0) win 0\n",
    ),
    (
        "listen: syn with data",
        "+.1 < S 7:17(10) win 8192 <mss 1000>\n+0 > S. 0:0(0) ack 8 <mss 1460>\n+.1 < R 1:1(0) win 0\n",
    ),
    // 3.10.7.3
    (
        "syn-sent: ack of nothing",
        "+.1 < . 7:7(0) ack 9 win 0\n+0 > R 9:9(0)\n+0 %{ assert tcpi_state == TCP_SYN_SENT }%\n+0 close(3) = 0\n",
    ),
    (
        "syn-sent: ack without syn",
        "+.1 < . 7:7(0) ack 1 win 0\n+0 %{ assert tcpi_state == TCP_SYN_SENT }%\n+0 close(3) = 0\n",
    ),
    (
        "syn-sent: blind reset",
        "+.1 < R 7:7(0) win 0\n+0 %{ assert tcpi_state == TCP_SYN_SENT }%\n+0 close(3) = 0\n",
    ),
    (
        "syn-sent: reset with a wrong ack",
        "+.1 < R. 7:7(0) ack 5 win 0\n+0 %{ assert tcpi_state == TCP_SYN_SENT }%\n+0 close(3) = 0\n",
    ),
    (
        "syn-sent: reset",
        "+.1 < R. 0:0(0) ack 1 win 0\n+0 %{ assert tcpi_state == TCP_CLOSE }%\n+0 getsockopt(3, SOL_SOCKET, SO_ERROR, [ECONNREFUSED], [4]) = 0\n",
    ),
    (
        "syn-sent: syn, ack",
        "+.1 < S. 0:0(0) ack 1 win 8192 <mss 1000>\n+0 > . 1:1(0) ack 1\n+0 %{ assert tcpi_state == TCP_ESTABLISHED }%\n",
    ),
    (
        "syn-sent: syn with a wrong ack",
        "+.1 < S. 0:0(0) ack 5 win 8192 <mss 1000>\n+0 > R 5:5(0)\n+0 %{ assert tcpi_state == TCP_SYN_SENT }%\n+0 close(3) = 0\n",
    ),
    (
        "syn-sent: syn (simultaneous open)",
        "+.1 < S 0:0(0) win 8192 <mss 1000>\n+0 > S. 0:0(0) ack 1 <mss 1460>\n+0 %{ assert tcpi_state == TCP_SYN_RECV }%\n\
         +.1 < S. 0:0(0) ack 1 win 8192 <mss 1000>\n+0 > . 1:1(0) ack 1\n+0 %{ assert tcpi_state == TCP_ESTABLISHED }%\n",
    ),
    (
        "syn-sent: fin",
        "+.1 < F 7:7(0) win 0\n+0 %{ assert tcpi_state == TCP_SYN_SENT }%\n+0 close(3) = 0\n",
    ),
    (
        "syn-sent: data",
        "+.1 < P 7:17(10) win 0\n+0 %{ assert tcpi_state == TCP_SYN_SENT }%\n+0 close(3) = 0\n",
    ),
    // 3.10.7.4, SYN-RECEIVED
    (
        "syn-received: ack",
        "+.1 < . 1:1(0) ack 1 win 8192\n+0 accept(3, ..., ...) = 4\n+0 %{ assert tcpi_state == TCP_ESTABLISHED }%\n",
    ),
    (
        "syn-received: ack with data",
        "+.1 < P. 1:11(10) ack 1 win 8192\n+0~+.04 > . 1:1(0) ack 11\n+0 accept(3, ..., ...) = 4\n+0 read(4, ..., 100) = 10\n",
    ),
    (
        "syn-received: ack with fin",
        "+.1 < F. 1:1(0) ack 1 win 8192\n+0 > . 1:1(0) ack 2\n+0 accept(3, ..., ...) = 4\n+0 %{ assert tcpi_state == TCP_CLOSE_WAIT }%\n",
    ),
    (
        "syn-received: ack of the future",
        "+.1 < . 1:1(0) ack 9 win 8192\n+0 > R 9:9(0)\n+.1 < . 1:1(0) ack 1 win 8192\n+0 accept(3, ..., ...) = 4\n",
    ),
    (
        "syn-received: syn again",
        "+.1 < S 0:0(0) win 8192 <mss 1460>\n+0 > S. 0:0(0) ack 1 <mss 1460>\n+.1 < R 1:1(0) win 0\n",
    ),
    (
        "syn-received: reset",
        "+.1 < R 1:1(0) win 0\n+.1 < . 1:1(0) ack 1 win 8192\n+0 > R 1:1(0)\n",
    ),
    (
        "syn-received: reset in the window",
        "+.1 < R 5:5(0) win 0\n+0 > . 1:1(0) ack 1\n+.1 < . 1:1(0) ack 1 win 8192\n+0 accept(3, ..., ...) = 4\n",
    ),
    (
        "syn-received: old data",
        "+.1 < . 4294962296:4294962306(10) ack 1 win 8192\n+0 > . 1:1(0) ack 1\n+.1 < . 1:1(0) ack 1 win 8192\n+0 accept(3, ..., ...) = 4\n",
    ),
    (
        "syn-received: no ack",
        "+.1 < P 1:11(10) win 8192\n+.1 < . 1:1(0) ack 1 win 8192\n+0 accept(3, ..., ...) = 4\n+0 fcntl(4, F_SETFL, O_NONBLOCK) = 0\n+0 read(4, ..., 10) = -1 EAGAIN\n",
    ),
];

const SYN_SENT: &str = "\
 0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 fcntl(3, F_SETFL, O_NONBLOCK) = 0
+0 connect(3, ..., ...) = -1 EINPROGRESS
+0 > S 0:0(0) <mss 1460>
";

fn check(name: &str, script: &str, failures: &mut Vec<String>) {
    if let Err(error) = packetdrill::check(script) {
        failures.push(format!("{name}: {error}\n{script}"));
    }
}

#[test]
fn synchronized_states_against_segments() {
    let mut failures = Vec::new();
    for state in &STATES {
        for kind in KINDS {
            let name = format!("{}: {kind:?}", state.name);
            check(&name, &state.script(kind), &mut failures);
        }
    }
    let failed = failures.len();
    assert!(
        failures.is_empty(),
        "{failed} of {} fail\n{}",
        STATES.len() * KINDS.len(),
        failures.join("\n")
    );
}

#[test]
fn opening_states_against_segments() {
    let mut failures = Vec::new();
    for (name, events) in OPENING {
        let path = match name.split_once(':').map(|(state, _)| state) {
            Some("closed") => String::new(),
            Some("listen") => LISTEN.to_owned(),
            Some("syn-sent") => SYN_SENT.to_owned(),
            _ => format!("{LISTEN}{SYN_RECEIVED}"),
        };
        check(name, &format!("{SETUP}{path}{events}"), &mut failures);
    }
    let failed = failures.len();
    assert!(
        failures.is_empty(),
        "{failed} of {} fail\n{}",
        OPENING.len(),
        failures.join("\n")
    );
}
