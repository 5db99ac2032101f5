//! The log: logfmt or JSON on stderr.

use anyhow::Context;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::cli::{Global, LogFormat};
use crate::exit::{Exit, Failure};

/// Starts logging; `default` is the filter where none was asked for.
pub(crate) fn start(global: &Global, default: &str) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(global.log.as_deref().unwrap_or(default))
        .context("the log filter cannot be read")
        .map_err(|error| {
            Failure::new(Exit::Usage, error)
                .remedy("write a level such as `info`, or pairs such as `dataplane=debug,info`")
        })?;
    let registry = tracing_subscriber::registry().with(filter);
    match global.log_format {
        LogFormat::Logfmt => registry.with(logfmt(std::io::stderr)).try_init(),
        LogFormat::Json => registry
            .with(
                tracing_subscriber::fmt::layer()
                    .json()
                    .flatten_event(true)
                    .with_writer(std::io::stderr),
            )
            .try_init(),
    }
    .context("the log is started already")?;
    Ok(())
}

fn logfmt<S, W>(writer: W) -> impl tracing_subscriber::Layer<S>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + 'static,
{
    tracing_subscriber::fmt::layer()
        .event_format(tracing_logfmt::EventsFormatter::default())
        .fmt_fields(tracing_logfmt::FieldsFormatter::default())
        .with_writer(writer)
}
