//! Inspected protocols through a gateway that masquerades, between real clients and servers of the test: only what the
//! control connection announces is let in, and every byte arrives.

mod common;
#[expect(dead_code, reason = "each test program uses a part of it")]
#[path = "common/gateway.rs"]
mod gateway;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use common::{Run, finish, tidegate, wait_until};
use gateway::{Gateway, PATIENCE, listen};
use lab::need;

const BYTES: usize = 300_000;

fn file() -> Vec<u8> {
    (0..BYTES)
        .map(|at| (at % 251) as u8 ^ (at >> 9) as u8)
        .collect()
}

/// Connections to this port may be opened from the left, and are inspected; nothing else may but what they expect.
fn rules(helper: &str, protocol: &str, port: u16) -> String {
    format!(
        "table inet filter {{
            ct helper watch {{ type \"{helper}\" protocol {protocol}; }}
            chain forward {{
                type filter hook forward priority filter; policy drop;
                ct state vmap {{ established : accept, related : accept, invalid : drop }}
                iifname left {protocol} dport {port} ct helper set \"watch\" accept
            }}
        }}
        table ip nat {{
            chain postrouting {{
                type nat hook postrouting priority srcnat;
                oifname right masquerade
            }}
        }}"
    )
}

/// Serves one control connection at a time: every file is [`file`], and what is stored must be it as well.
fn serve_ftp(listener: &TcpListener, sessions: usize) {
    for _ in 0..sessions {
        let (control, _) = listener.accept().unwrap();
        control.set_read_timeout(Some(PATIENCE)).unwrap();
        serve_session(control);
    }
}

fn serve_session(control: TcpStream) {
    let own = control.local_addr().unwrap().ip();
    let mut commands = BufReader::new(control.try_clone().unwrap()).lines();
    let mut control = control;
    let mut say = |text: &str| write!(control, "{text}\r\n").unwrap();
    let mut waiting: Option<TcpListener> = None;
    let mut active: Option<SocketAddr> = None;
    say("220 ready");
    while let Some(Ok(line)) = commands.next() {
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match word {
            "USER" => say("331 password"),
            "PASV" | "EPSV" => {
                let listener = TcpListener::bind((own, 0)).unwrap();
                let port = listener.local_addr().unwrap().port();
                waiting = Some(listener);
                if word == "EPSV" {
                    say(&format!("229 Extended (|||{port}|)"));
                } else {
                    let address = own.to_string().replace('.', ",");
                    say(&format!(
                        "227 Passive ({address},{},{}).",
                        port >> 8,
                        port & 255
                    ));
                }
            }
            "PORT" => {
                let values: Vec<u16> = rest.split(',').map(|one| one.parse().unwrap()).collect();
                let address = IpAddr::from([0, 1, 2, 3].map(|at| values[at] as u8));
                active = Some(SocketAddr::new(address, values[4] << 8 | values[5]));
                say("200 active");
            }
            "EPRT" => {
                let parts: Vec<&str> = rest.split('|').collect();
                let address: IpAddr = parts[2].parse().unwrap();
                active = Some(SocketAddr::new(address, parts[3].parse().unwrap()));
                say("200 active");
            }
            "RETR" | "STOR" => {
                say("150 now");
                let mut data = match (active.take(), waiting.take()) {
                    (Some(address), _) => {
                        TcpStream::connect_timeout(&address, Duration::from_secs(5)).unwrap()
                    }
                    (None, Some(listener)) => listener.accept().unwrap().0,
                    (None, None) => panic!("no data connection"),
                };
                if word == "RETR" {
                    data.write_all(&file()).unwrap();
                } else {
                    let mut stored = Vec::new();
                    data.read_to_end(&mut stored).unwrap();
                    assert!(stored == file(), "what was stored is what was sent");
                }
                drop(data);
                say("226 done");
            }
            "QUIT" => {
                say("221 bye");
                return;
            }
            "PWD" => say("257 \"/\""),
            "PASS" | "TYPE" | "CWD" => say("230 fine"),
            _ => say("502 not here"),
        }
    }
}

/// Runs curl on the left.
fn curl(gateway: &Gateway, arguments: &[&str]) -> Run {
    let mut command = gateway.line.left.namespace.command("curl");
    command.args(["-sS", "--max-time", "15"]);
    finish(command.args(arguments))
}

#[test]
fn row_78_ftp_through_masquerade() {
    let test = "row_78_ftp_through_masquerade";
    if !need::root(test) || !need::program(test, "ip") || !need::program(test, "curl") {
        return;
    }
    let gateway = Gateway::with_rules(&rules("ftp", "tcp", 21), None, "");
    let server = listen(&gateway.line.right.namespace, 21);
    let address = gateway.line.right.address();
    let (target, upload) = (
        format!("ftp://{address}/file"),
        format!("ftp://{address}/up"),
    );
    let local = gateway.directory().join("local");
    let local = local.to_str().unwrap();
    let ways: [&[&str]; 4] = [
        &["--disable-epsv"],
        &[],
        &["-P", "-", "--disable-eprt"],
        &["-P", "-"],
    ];
    // The first one may be refused while the node starts.
    assert!(wait_until(PATIENCE, || {
        gateway.connect(21, Duration::from_secs(2)).is_ok()
    }));
    drop(server.accept().unwrap());
    let right = &gateway.line.right.namespace;
    std::thread::scope(|scope| {
        let served = scope.spawn(|| right.run(|| serve_ftp(&server, 2 * ways.len())).unwrap());
        for way in ways {
            let down = curl(&gateway, &[way, &["-o", local, &target]].concat());
            assert_eq!((down.code, down.stderr.as_str()), (0, ""), "{way:?}");
            assert!(
                std::fs::read(local).unwrap() == file(),
                "{way:?}: every byte"
            );
            let up = curl(&gateway, &[way, &["-T", local, &upload]].concat());
            assert_eq!((up.code, up.stderr.as_str()), (0, ""), "{way:?}");
        }
        served.join().unwrap();
    });
    let mut command = tidegate();
    command.arg("--socket").arg(gateway.socket());
    let listed = finish(command.args(["session", "ls"])).stdout;
    assert_eq!(
        listed.matches("[RELATED]").count(),
        2 * ways.len(),
        "{listed}"
    );
    assert!(listed.contains("helper=ftp"), "{listed}");
}

/// Answers one read request, from a port of its own (RFC 1350 4).
fn serve_tftp(socket: &UdpSocket) {
    let mut request = [0; 600];
    let (_, client) = socket.recv_from(&mut request).unwrap();
    assert_eq!(request[..2], [0, 1]);
    let data = UdpSocket::bind((socket.local_addr().unwrap().ip(), 0)).unwrap();
    data.set_read_timeout(Some(PATIENCE)).unwrap();
    for (at, block) in file()[..20_000].chunks(512).enumerate() {
        let number = (at as u16 + 1).to_be_bytes();
        let packet = [&[0, 3], &number[..], block].concat();
        data.send_to(&packet, client).unwrap();
        let mut answer = [0; 600];
        let (len, _) = data.recv_from(&mut answer).unwrap();
        assert_eq!((len, &answer[2..4]), (4, &number[..]));
    }
}

#[test]
fn row_79_tftp_through_masquerade() {
    let test = "row_79_tftp_through_masquerade";
    if !need::root(test) || !need::program(test, "ip") || !need::program(test, "curl") {
        return;
    }
    let gateway = Gateway::with_rules(&rules("tftp", "udp", 69), None, "");
    let address = gateway.line.right.address();
    let right = &gateway.line.right.namespace;
    let local = gateway.directory().join("local");
    let url = format!("tftp://{address}/file");
    std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            right
                .run(|| {
                    let socket = UdpSocket::bind((address, 69)).unwrap();
                    socket.set_read_timeout(Some(PATIENCE)).unwrap();
                    serve_tftp(&socket);
                })
                .unwrap();
        });
        // curl asks again until it is answered.
        let down = curl(&gateway, &["-o", local.to_str().unwrap(), &url]);
        assert_eq!((down.code, down.stderr.as_str()), (0, ""));
        served.join().unwrap();
    });
    assert!(
        std::fs::read(&local).unwrap() == file()[..20_000],
        "every byte"
    );
}
