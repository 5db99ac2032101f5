//! What the control socket is asked, and who answers: the dataplane, or the main thread.

use std::sync::{Arc, mpsc};

use control::api::{ApiError, ErrorCode, PROTOCOL_VERSION, Reply, Request};
use control::socket::{Answer, Handler, Peer};
use dataplane::Dataplane;
use tracing::info;

use super::Order;

/// Makes the handler of the control socket.
pub(super) fn handler(dataplane: Arc<Dataplane>, orders: mpsc::SyncSender<Order>) -> Arc<Handler> {
    Arc::new(move |request, peer| answer(&dataplane, &orders, request, peer))
}

fn answer(
    dataplane: &Dataplane,
    orders: &mpsc::SyncSender<Order>,
    request: Request,
    peer: Peer,
) -> Answer {
    Answer::Reply(match request {
        Request::Hello => Reply::Hello {
            protocol: PROTOCOL_VERSION,
            node: Box::new(dataplane.stats().node),
        },
        Request::Stats => Reply::Stats(Box::new(dataplane.stats())),
        Request::Neighbours => Reply::Neighbours(dataplane.neighbours()),
        Request::Routes => Reply::Routes(dataplane.routes()),
        Request::Bridges => Reply::Bridges(dataplane.bridges()),
        Request::Config => Reply::Config(dataplane.config().to_toml()),
        Request::Reload if !peer.may_change() => refused("reload it"),
        Request::Reload => {
            info!(pid = peer.pid, uid = peer.uid, "a client asks for a reload");
            order(orders, Order::Reload)
        }
        Request::Rules => Reply::Rules(dataplane.rules()),
        Request::ApplyRules { .. } | Request::ConfirmRules { .. } if !peer.may_change() => {
            refused("replace its rules")
        }
        Request::ApplyRules { path, confirm_s } => {
            info!(pid = peer.pid, uid = peer.uid, path = %path.display(), "a client applies rules");
            order(orders, |reply| Order::ApplyRules {
                path,
                confirm_s,
                reply,
            })
        }
        Request::ConfirmRules { keep } => {
            order(orders, |reply| Order::ConfirmRules { keep, reply })
        }
        // It reads a file for the client.
        Request::DeniedConnections { .. } if !peer.may_change() => refused("try rules"),
        Request::DeniedConnections { path, end } => match dataplane.denied_by(&path, end) {
            Ok(denied) => Reply::DeniedConnections(denied),
            Err(error) => Reply::Error(ApiError {
                code: ErrorCode::Failed,
                message: format!("{:#}", anyhow::Error::from(error)),
                remedy: None,
            }),
        },
        Request::Capture(what) => match dataplane.capture(&what) {
            Ok(capture) => {
                info!(pid = peer.pid, uid = peer.uid, "a client captures packets");
                return Answer::Capture(Box::new(move |sink| capture.run(sink)));
            }
            Err(error) => Reply::Error(error),
        },
        Request::Sessions(what) => or_error(dataplane.sessions(&what).map(Reply::Sessions)),
        Request::EndSessions(_) if !peer.may_change() => refused("end connections"),
        Request::EndSessions(which) => {
            info!(
                pid = peer.pid,
                uid = peer.uid,
                ?which,
                "a client ends connections"
            );
            or_error(dataplane.end_sessions(&which).map(Reply::SessionsEnded))
        }
        Request::SessionEvents(which) => match dataplane.session_events(which) {
            Ok(watch) => return Answer::Events(Box::new(move |sink| watch.run(sink))),
            Err(error) => Reply::Error(error),
        },
        Request::Attach if !peer.may_change() => Reply::Error(ApiError {
            code: ErrorCode::Refused,
            message: "only root and the node's own user may use its host".into(),
            remedy: Some("run the program as the node's user".into()),
        }),
        Request::Attach => match dataplane.attach(&dataplane.config().node.control_socket) {
            Ok(lease) => {
                info!(pid = peer.pid, uid = peer.uid, "a program uses the host");
                return Answer::Hold(Reply::Attached(lease.attachment()), Box::new(lease));
            }
            Err(error) => Reply::Error(error),
        },
        // the server answers it from the counters
        Request::Watch { .. } => Reply::Watching,
    })
}

fn refused(what: &str) -> Reply {
    Reply::Error(ApiError {
        code: ErrorCode::Refused,
        message: format!("only root and the node's own user may {what}"),
        remedy: Some("run the command by `sudo`".into()),
    })
}

fn or_error(reply: Result<Reply, ApiError>) -> Reply {
    reply.unwrap_or_else(Reply::Error)
}

/// Gives the main thread an order and waits for its reply.
fn order(
    orders: &mpsc::SyncSender<Order>,
    make: impl FnOnce(mpsc::SyncSender<Reply>) -> Order,
) -> Reply {
    let (reply, answer) = mpsc::sync_channel(1);
    let sent = orders.send(make(reply)).is_ok();
    sent.then(|| answer.recv().ok())
        .flatten()
        .unwrap_or_else(|| {
            Reply::Error(ApiError {
                code: ErrorCode::Failed,
                message: "the node stops".into(),
                remedy: None,
            })
        })
}
