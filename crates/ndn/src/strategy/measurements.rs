//! Round-trip times by prefix and face, with timeouts: what ASF ranks next hops by.

use core::time::Duration;

use hashbrown::HashTable;
use wire::Instant;

use crate::face::FaceId;

/// The smoothed round-trip time and variance of RFC 6298, with ndn-cxx's bounds.
#[derive(Clone, Copy, Debug, Default)]
struct Estimator {
    srtt: Option<Duration>,
    variance: Duration,
}

impl Estimator {
    const RTO_MIN: Duration = Duration::from_millis(200);
    const RTO_MAX: Duration = Duration::from_secs(60);

    fn add(&mut self, rtt: Duration) {
        match self.srtt {
            None => {
                self.srtt = Some(rtt);
                self.variance = rtt / 2;
            }
            Some(srtt) => {
                self.variance = (self.variance * 3 + srtt.abs_diff(rtt)) / 4;
                self.srtt = Some((srtt * 7 + rtt) / 8);
            }
        }
    }

    fn rto(&self) -> Duration {
        match self.srtt {
            None => Duration::from_secs(1),
            Some(srtt) => (srtt + self.variance * 4).clamp(Self::RTO_MIN, Self::RTO_MAX),
        }
    }
}

/// What is known of a face's round-trip time. The order is the one in which faces are preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaceRtt {
    /// Data came; its smoothed round-trip time.
    Measured(Duration),
    /// Never used.
    Unknown,
    /// Data did not come in time.
    TimedOut,
}

/// What was measured of one face for one prefix.
#[derive(Clone, Copy, Debug)]
struct FaceMeasure {
    key: u64,
    face: FaceId,
    estimator: Estimator,
    last: FaceRtt,
    timeouts: u32,
    /// The Interest that is waited for, and until when.
    awaited: Option<(u64, Instant)>,
    expiry: Instant,
}

/// When a prefix is probed next.
#[derive(Clone, Copy, Debug)]
struct Probe {
    key: u64,
    due: Instant,
    expiry: Instant,
}

/// Measurements of all prefixes, sized at start. When it is full, what is new is not measured; what is not
/// used expires.
#[derive(Debug)]
pub struct Measurements {
    faces: HashTable<FaceMeasure>,
    probes: HashTable<Probe>,
    capacity: usize,
    next_sweep: Instant,
}

/// How often what expired is removed.
const SWEEP: Duration = Duration::from_secs(30);

fn face_hash(key: u64, face: FaceId) -> u64 {
    key ^ u64::from(face.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Measurements {
    /// Makes room for `capacity` pairs of prefix and face.
    pub fn new(capacity: usize) -> Self {
        Self {
            faces: HashTable::with_capacity(capacity),
            probes: HashTable::with_capacity(capacity),
            capacity,
            next_sweep: Instant::ZERO,
        }
    }

    /// Returns what is known of a face; a timeout that is due counts.
    pub fn rtt(&mut self, key: u64, face: FaceId, now: Instant, timeouts_max: u32) -> FaceRtt {
        let Some(measure) = self.find(key, face) else {
            return FaceRtt::Unknown;
        };
        measure.settle(now, timeouts_max);
        match (measure.last, measure.estimator.srtt) {
            (FaceRtt::Measured(_), Some(srtt)) => FaceRtt::Measured(srtt),
            (last, _) => last,
        }
    }

    /// An Interest, named by its hash, was sent to a face: a timeout runs from now, unless one runs already.
    pub fn sent(
        &mut self,
        key: u64,
        face: FaceId,
        interest: u64,
        now: Instant,
        lifetime: Duration,
        timeouts_max: u32,
    ) {
        if self.find(key, face).is_none() {
            if self.faces.len() >= self.capacity {
                return;
            }
            let fresh = FaceMeasure {
                key,
                face,
                estimator: Estimator::default(),
                last: FaceRtt::Unknown,
                timeouts: 0,
                awaited: None,
                expiry: now + lifetime,
            };
            self.faces
                .insert_unique(face_hash(key, face), fresh, |measure| {
                    face_hash(measure.key, measure.face)
                });
        }
        if let Some(measure) = self.find(key, face) {
            measure.settle(now, timeouts_max);
            measure.expiry = now + lifetime;
            if measure.awaited.is_none() {
                measure.awaited = Some((interest, now + measure.estimator.rto()));
            }
        }
    }

    /// Data came from a face after `rtt`.
    pub fn received(
        &mut self,
        key: u64,
        face: FaceId,
        interest: u64,
        rtt: Duration,
        now: Instant,
        lifetime: Duration,
    ) {
        let Some(measure) = self.find(key, face) else {
            return;
        };
        measure.estimator.add(rtt);
        measure.last = FaceRtt::Measured(rtt);
        measure.timeouts = 0;
        measure.expiry = now + lifetime;
        if measure
            .awaited
            .is_some_and(|(awaited, _)| awaited == interest)
        {
            measure.awaited = None;
        }
    }

    /// A face refused an Interest.
    pub fn refused(&mut self, key: u64, face: FaceId) {
        if let Some(measure) = self.find(key, face) {
            measure.last = FaceRtt::TimedOut;
            measure.timeouts = 0;
            measure.awaited = None;
        }
    }

    /// True if the prefix is to be probed now; the first time a random moment in the next 5 s is chosen.
    pub fn is_probe_due(
        &mut self,
        key: u64,
        now: Instant,
        first: Duration,
        lifetime: Duration,
    ) -> bool {
        if let Some(probe) = self.probes.find_mut(key, |probe| probe.key == key) {
            probe.expiry = now + lifetime;
            return probe.due <= now;
        }
        if self.probes.len() < self.capacity {
            let probe = Probe {
                key,
                due: now + first,
                expiry: now + lifetime,
            };
            self.probes.insert_unique(key, probe, |probe| probe.key);
        }
        false
    }

    /// The prefix was probed: next time after `interval`.
    pub fn probed(&mut self, key: u64, now: Instant, interval: Duration) {
        if let Some(probe) = self.probes.find_mut(key, |probe| probe.key == key) {
            probe.due = now + interval;
        }
    }

    /// Removes what expired, at most every 30 s; O(capacity) then.
    pub fn sweep(&mut self, now: Instant) {
        if now < self.next_sweep {
            return;
        }
        self.next_sweep = now + SWEEP;
        self.faces.retain(|measure| measure.expiry > now);
        self.probes.retain(|probe| probe.expiry > now);
    }

    /// Forgets a face that was removed.
    pub fn remove_face(&mut self, face: FaceId) {
        self.faces.retain(|measure| measure.face != face);
    }

    /// Returns the number of pairs of prefix and face.
    pub fn len(&self) -> usize {
        self.faces.len()
    }

    /// True if nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.faces.is_empty()
    }

    fn find(&mut self, key: u64, face: FaceId) -> Option<&mut FaceMeasure> {
        self.faces.find_mut(face_hash(key, face), |measure| {
            measure.key == key && measure.face == face
        })
    }
}

impl FaceMeasure {
    /// Counts a timeout that is due. That it is done when the face is looked at, not when the time comes, is
    /// the same to who looks, and needs no timer.
    fn settle(&mut self, now: Instant, timeouts_max: u32) {
        if self.awaited.is_none_or(|(_, until)| until > now) {
            return;
        }
        self.awaited = None;
        self.timeouts += 1;
        if self.timeouts >= timeouts_max {
            self.last = FaceRtt::TimedOut;
            self.timeouts = 0;
        }
    }
}
