/*
 * What Rust cannot call of DPDK: its inline functions, here as plain ones; and the mempool through which
 * the drivers of DPDK and a worker's pool of frames pass the same memory to and fro.
 *
 * A slot of the frame region is one object of a mempool: 64 bytes of object header, the rte_mbuf of 128
 * bytes, then the buffer that a `Frame` points to. So an mbuf is found from a frame, and a frame from an
 * mbuf, by adding a constant.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_malloc.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_memzone.h>
#include <rte_prefetch.h>
#include <rte_ring.h>
#include <rte_tcp.h>
#include <rte_version.h>

#define TG_HEADER_BYTES 64
#define TG_PREFIX_BYTES (TG_HEADER_BYTES + sizeof(struct rte_mbuf))
#define TG_BURST 64

_Static_assert(sizeof(struct rte_mbuf) == 128, "a frame's prefix is 64 + 128 bytes");

/* As `Mbuf` in mbuf.rs. */
#define TG_AT(field, at) _Static_assert(offsetof(struct rte_mbuf, field) == (at), "as in mbuf.rs: " #field)
TG_AT(buf_addr, 0);
TG_AT(data_off, 16);
TG_AT(nb_segs, 20);
TG_AT(ol_flags, 24);
TG_AT(pkt_len, 36);
TG_AT(data_len, 40);
TG_AT(vlan_tci_outer, 52);
_Static_assert(RTE_MBUF_F_RX_L4_CKSUM_MASK == (1 << 3 | 1 << 8), "as in mbuf.rs");
_Static_assert(RTE_MBUF_F_RX_L4_CKSUM_GOOD == 1 << 8, "as in mbuf.rs");

/*
 * Marks an mbuf whose slot is not with DPDK: no driver writes this field but for a second VLAN tag that it
 * stripped, which nobody asks for.
 */
#define TG_OUT 0xa5a5

#define TG_TX_TCP 2
#define TG_TX_UDP 4
#define TG_TX_IPV4 8
#define TG_TX_SEGMENT 16

/* As `PortFacts` in ffi.rs. */
struct tg_facts {
	uint8_t mac[6];
	uint16_t mtu;
	uint16_t max_mtu;
	uint16_t max_rx_queues;
	uint16_t max_tx_queues;
	uint16_t rx_desc_max;
	uint16_t tx_desc_max;
	uint8_t tx_checksums;
	uint8_t tx_segments;
	uint8_t rss;
	char driver[32];
};

/* As `PortCounters` in ffi.rs. */
struct tg_counters {
	uint64_t missed;
	uint64_t no_mbuf;
	uint64_t rx_errors;
	uint64_t tx_errors;
};

/* --- the mempool ------------------------------------------------------------------------------------- */

/*
 * Free objects of one worker. The owner pushes and pops a plain stack; whoever else frees an object (a
 * control thread, another worker's transmit queue) puts it into a ring, from which the owner takes it.
 * A driver that fills its ring from another thread than the owner's (rte_eth_dev_start) takes from the
 * ring only.
 */
struct tg_pool {
	struct rte_mempool *mempool;
	struct rte_ring *others;
	/* Thread, 0 for none: of any process, since ids of threads are never the same in two of them. */
	pid_t owner;
	char *base;
	uint32_t slot_bytes;
	uint32_t level;
	uint32_t capacity;
	void *stack[];
};

/*
 * The calling thread's id, once it has been asked for. The shim is part of the program, not of a library that is
 * loaded later: no call is needed to find it.
 */
static __thread pid_t tg_thread __attribute__((tls_model("initial-exec")));

static int
tg_ops_alloc(struct rte_mempool *mempool)
{
	mempool->pool_data = mempool->pool_config;
	return 0;
}

static void
tg_ops_free(struct rte_mempool *mempool)
{
	(void)mempool;
}

static inline int
tg_is_owner(const struct tg_pool *pool)
{
	/* Relaxed: a thread that reads its own id wrote it itself. 0: this thread owns no pool. */
	return tg_thread != 0 && __atomic_load_n(&pool->owner, __ATOMIC_RELAXED) == tg_thread;
}

static int
tg_ops_enqueue(struct rte_mempool *mempool, void *const *objects, unsigned int n)
{
	struct tg_pool *pool = mempool->pool_data;

	if (likely(tg_is_owner(pool))) {
		uint32_t level = pool->level;
		void **top = &pool->stack[level];

		if (likely(n <= pool->capacity - level)) {
			pool->level = level + n;
			/* Drivers free sent packets one by one. */
			if (likely(n == 1))
				top[0] = objects[0];
			else
				memcpy(top, objects, n * sizeof(*objects));
			return 0;
		}
	}
	return rte_ring_mp_enqueue_bulk(pool->others, objects, n, NULL) == n ? 0 : -ENOBUFS;
}

static int
tg_ops_dequeue(struct rte_mempool *mempool, void **objects, unsigned int n)
{
	struct tg_pool *pool = mempool->pool_data;

	if (!tg_is_owner(pool))
		return rte_ring_mc_dequeue_bulk(pool->others, objects, n, NULL) == n ? 0 : -ENOENT;
	if (pool->level < n)
		pool->level += rte_ring_mc_dequeue_burst(pool->others, &pool->stack[pool->level],
							 pool->capacity - pool->level, NULL);
	if (pool->level < n)
		return -ENOENT;
	for (unsigned int i = 0; i < n; i++)
		objects[i] = pool->stack[pool->level - 1 - i];
	pool->level -= n;
	return 0;
}

static unsigned int
tg_ops_count(const struct rte_mempool *mempool)
{
	const struct tg_pool *pool = mempool->pool_data;

	return pool->level + rte_ring_count(pool->others);
}

static const struct rte_mempool_ops tg_ops = {
	.name = "tidegate",
	.alloc = tg_ops_alloc,
	.free = tg_ops_free,
	.enqueue = tg_ops_enqueue,
	.dequeue = tg_ops_dequeue,
	.get_count = tg_ops_count,
};
RTE_MEMPOOL_REGISTER_OPS(tg_ops);

/* Makes a mempool of `frames` slots at `base`; all of them are out, none is free. NULL: see rte_errno. */
struct tg_pool *
tg_pool_new(const char *name, void *base, uint32_t frames, uint32_t frame_bytes)
{
	struct rte_pktmbuf_pool_private sizes = { 0 };
	struct tg_pool *pool;
	void *object;

	pool = rte_zmalloc("tidegate", sizeof(*pool) + frames * sizeof(void *), RTE_CACHE_LINE_SIZE);
	if (pool == NULL) {
		rte_errno = ENOMEM;
		return NULL;
	}
	pool->capacity = frames;
	pool->others = rte_ring_create(name, rte_align32pow2(frames + 1), SOCKET_ID_ANY, 0);
	if (pool->others == NULL)
		goto fail;
	pool->mempool = rte_mempool_create_empty(name, frames, frame_bytes - TG_HEADER_BYTES, 0,
						 sizeof(sizes), SOCKET_ID_ANY,
						 RTE_MEMPOOL_F_NO_SPREAD);
	if (pool->mempool == NULL)
		goto fail;
	if (pool->mempool->header_size != TG_HEADER_BYTES || pool->mempool->trailer_size != 0) {
		rte_errno = ENOTSUP;
		goto fail;
	}
	if (rte_mempool_set_ops_byname(pool->mempool, "tidegate", pool) != 0) {
		rte_errno = EINVAL;
		goto fail;
	}
	sizes.mbuf_data_room_size = frame_bytes - TG_PREFIX_BYTES;
	rte_pktmbuf_pool_init(pool->mempool, &sizes);
	/* IOVA is the virtual address: the only mode that the EAL is started in. */
	if (rte_mempool_populate_iova(pool->mempool, base, (rte_iova_t)(uintptr_t)base,
				      (size_t)frames * frame_bytes, NULL, NULL) != (int)frames) {
		rte_errno = EINVAL;
		goto fail;
	}
	rte_mempool_obj_iter(pool->mempool, rte_pktmbuf_init, NULL);
	pool->base = base;
	pool->slot_bytes = frame_bytes;
	while (rte_ring_mc_dequeue(pool->others, &object) == 0)
		((struct rte_mbuf *)object)->vlan_tci_outer = TG_OUT;
	return pool;
fail:
	rte_mempool_free(pool->mempool);
	rte_ring_free(pool->others);
	rte_free(pool);
	return NULL;
}

/* The calling thread is the one that uses the pool from now on. */
void
tg_pool_own(struct tg_pool *pool)
{
	if (tg_thread == 0)
		tg_thread = (pid_t)syscall(SYS_gettid);
	__atomic_store_n(&pool->owner, tg_thread, __ATOMIC_RELAXED);
}

/* Finds the pool that another process has made; NULL if there is none. */
struct tg_pool *
tg_pool_find(const char *name)
{
	struct rte_mempool *mempool = rte_mempool_lookup(name);

	return mempool == NULL ? NULL : mempool->pool_config;
}

/*
 * Takes a pool over from a dead process: what that had in hand is free again. Returns how many slots these
 * were. What it was just passing to or from a driver stays lost: two bursts at most.
 */
uint32_t
tg_pool_recover(struct tg_pool *pool)
{
	uint32_t recovered = 0, kept = 0;
	void *object;

	__atomic_store_n(&pool->owner, 0, __ATOMIC_RELAXED);
	/* One consumer does not wait for one that died half-way. */
	pool->level = RTE_MIN(pool->level, pool->capacity);
	while (pool->level < pool->capacity && rte_ring_sc_dequeue(pool->others, &object) == 0)
		pool->stack[pool->level++] = object;
	for (uint32_t i = 0; i < pool->capacity; i++) {
		struct rte_mbuf *mbuf = (struct rte_mbuf *)
			(pool->base + (size_t)i * pool->slot_bytes + TG_HEADER_BYTES);

		if (mbuf->vlan_tci_outer != TG_OUT)
			continue;
		rte_pktmbuf_init(pool->mempool, NULL, mbuf, i);
		mbuf->vlan_tci_outer = 0;
		if (pool->level < pool->capacity) {
			pool->stack[pool->level++] = mbuf;
			recovered++;
		}
	}
	/* All into the ring, from which any thread takes. */
	while (pool->level > 0 && rte_ring_sp_enqueue(pool->others, pool->stack[pool->level - 1]) == 0) {
		pool->level--;
		kept++;
	}
	return kept < recovered ? kept : recovered;
}

/* Objects that the drivers may take. The calling thread owns the pool: it may not be the one that did before. */
uint32_t
tg_pool_level(struct tg_pool *pool)
{
	if (unlikely(!tg_is_owner(pool)))
		tg_pool_own(pool);
	return pool->level + rte_ring_count(pool->others);
}

/* Gives slots to the drivers, through the ring if `shared` (so that another thread can take them). */
uint32_t
tg_pool_put(struct tg_pool *pool, void *const *slots, uint32_t n, int shared)
{
	void *objects[TG_BURST];

	n = RTE_MIN(n, (uint32_t)TG_BURST);
	for (uint32_t i = 0; i < n; i++) {
		struct rte_mbuf *mbuf = (struct rte_mbuf *)slots[i] - 1;

		mbuf->vlan_tci_outer = 0;
		objects[i] = mbuf;
	}
	if (shared)
		return rte_ring_mp_enqueue_bulk(pool->others, objects, n, NULL);
	return tg_ops_enqueue(pool->mempool, objects, n) == 0 ? n : 0;
}

/* Takes up to `n` slots back from the drivers. */
uint32_t
tg_pool_take(struct tg_pool *pool, void **slots, uint32_t n)
{
	uint32_t taken = 0;

	for (; taken < n; taken++) {
		void *object;

		if (tg_ops_dequeue(pool->mempool, &object, 1) != 0)
			break;
		((struct rte_mbuf *)object)->vlan_tci_outer = TG_OUT;
		slots[taken] = (char *)object + sizeof(struct rte_mbuf);
	}
	return taken;
}

/*
 * Takes up to `n` slots back that drivers have not freed although all ports are closed (net_af_xdp keeps
 * those of its fill ring). `*next` is where to go on, 0 at first.
 */
uint32_t
tg_pool_reclaim(struct tg_pool *pool, void **slots, uint32_t n, uint32_t *next)
{
	uint32_t taken = 0;
	void *object_of_ring;

	if (*next == 0) {
		/* What is free here is found by its mark, too. */
		pool->level = 0;
		while (rte_ring_mc_dequeue(pool->others, &object_of_ring) == 0)
			;
	}
	for (; *next < pool->capacity && taken < n; (*next)++) {
		char *object = pool->base + (size_t)*next * pool->slot_bytes + TG_HEADER_BYTES;
		struct rte_mbuf *mbuf = (struct rte_mbuf *)object;

		if (mbuf->vlan_tci_outer == TG_OUT)
			continue;
		rte_pktmbuf_init(pool->mempool, NULL, mbuf, *next);
		mbuf->vlan_tci_outer = TG_OUT;
		slots[taken++] = mbuf + 1;
	}
	return taken;
}

/* --- start, ports ------------------------------------------------------------------------------------ */

const char *
tg_version(void)
{
	return rte_version();
}

const char *
tg_error(int error)
{
	return rte_strerror(error);
}

/* 0, or the error number. */
int
tg_eal_init(int argc, char **argv)
{
	return rte_eal_init(argc, argv) < 0 ? rte_errno : 0;
}

/* Tells DPDK of memory that it did not allocate; 0, or the error number. */
int
tg_memory(void *base, size_t bytes, size_t page_bytes)
{
	return rte_extmem_register(base, bytes, NULL, 0, page_bytes) == 0 ? 0 : rte_errno;
}

/*
 * Reserves memory that other processes find by its name (`bytes` > 0), or finds it (0). 0, or the error
 * number.
 */
int
tg_zone(const char *name, size_t bytes, void **base, size_t *found_bytes)
{
	const struct rte_memzone *zone = bytes == 0 ? rte_memzone_lookup(name)
		: rte_memzone_reserve_aligned(name, bytes, SOCKET_ID_ANY, 0, RTE_PGSIZE_2M);

	if (zone == NULL)
		return rte_errno != 0 ? rte_errno : ENOENT;
	*base = zone->addr;
	*found_bytes = zone->len;
	return 0;
}

const char *
tg_runtime_directory(void)
{
	return rte_eal_get_runtime_dir();
}

/* Tells whether the port was configured when this secondary process attached to it. */
int
tg_port_attached(uint16_t port)
{
	return rte_eth_fp_ops[port].rxq.data != NULL;
}

/* Tells whether the primary process has set the queue up. */
int
tg_queue_ready(uint16_t port, uint16_t queue)
{
	struct rte_eth_rxq_info rx;
	struct rte_eth_txq_info tx;

	return rte_eth_rx_queue_info_get(port, queue, &rx) != -EINVAL &&
	       rte_eth_tx_queue_info_get(port, queue, &tx) != -EINVAL;
}

/* Plugs a device in and finds its port; 0, or the error number. */
int
tg_port_plug(const char *devargs, const char *name, uint16_t *port)
{
	int error;

	if (rte_eth_dev_get_port_by_name(name, port) == 0)
		return 0;
	error = rte_dev_probe(devargs);
	if (error != 0)
		return -error;
	return rte_eth_dev_get_port_by_name(name, port) == 0 ? 0 : ENODEV;
}

/* Finds the port of a device that is plugged in; 0, or the error number. */
int
tg_port_find(const char *name, uint16_t *port)
{
	return -rte_eth_dev_get_port_by_name(name, port);
}

/* Lets the port's device reach the region by DMA, where it is a real one. */
void
tg_port_map(uint16_t port, void *base, size_t bytes)
{
	struct rte_eth_dev_info info;

	if (rte_eth_dev_info_get(port, &info) == 0 && info.device != NULL)
		rte_dev_dma_map(info.device, base, (uint64_t)(uintptr_t)base, bytes);
}

int
tg_port_facts(uint16_t port, struct tg_facts *facts)
{
	struct rte_eth_dev_info info;
	struct rte_ether_addr mac;
	const uint64_t tx = RTE_ETH_TX_OFFLOAD_TCP_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
	const uint64_t tso = tx | RTE_ETH_TX_OFFLOAD_TCP_TSO | RTE_ETH_TX_OFFLOAD_IPV4_CKSUM;
	int error = rte_eth_dev_info_get(port, &info);

	if (error != 0)
		return -error;
	memset(facts, 0, sizeof(*facts));
	if (rte_eth_macaddr_get(port, &mac) == 0)
		memcpy(facts->mac, mac.addr_bytes, sizeof(facts->mac));
	rte_eth_dev_get_mtu(port, &facts->mtu);
	facts->max_mtu = info.max_mtu;
	facts->max_rx_queues = info.max_rx_queues;
	facts->max_tx_queues = info.max_tx_queues;
	facts->rx_desc_max = info.rx_desc_lim.nb_max;
	facts->tx_desc_max = info.tx_desc_lim.nb_max;
	facts->tx_checksums = (info.tx_offload_capa & tx) == tx;
	facts->tx_segments = (info.tx_offload_capa & tso) == tso;
	facts->rss = info.flow_type_rss_offloads != 0;
	if (info.driver_name != NULL)
		strncpy(facts->driver, info.driver_name, sizeof(facts->driver) - 1);
	return 0;
}

/* Configures the port; asks for interrupts, and does without where the driver has none (`*interrupts`). */
int
tg_port_configure(uint16_t port, uint16_t queues, uint16_t mtu, int *interrupts,
		  uint16_t *rx_descriptors, uint16_t *tx_descriptors)
{
	struct rte_eth_dev_info info;
	struct rte_eth_conf conf;
	int error = rte_eth_dev_info_get(port, &info);

	if (error != 0)
		return -error;
	for (*interrupts = 1; *interrupts >= 0; (*interrupts)--) {
		memset(&conf, 0, sizeof(conf));
		conf.rxmode.mtu = mtu;
		conf.intr_conf.rxq = *interrupts;
		if (queues > 1 && info.flow_type_rss_offloads != 0) {
			conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
			conf.rx_adv_conf.rss_conf.rss_hf = info.flow_type_rss_offloads &
				(RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP);
		}
		conf.txmode.offloads |= info.tx_offload_capa &
			(RTE_ETH_TX_OFFLOAD_TCP_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM |
			 RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_TSO);
		conf.rxmode.offloads |= info.rx_offload_capa &
			(RTE_ETH_RX_OFFLOAD_TCP_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM);
		error = rte_eth_dev_configure(port, queues, queues, &conf);
		if (error == 0)
			break;
	}
	if (error != 0)
		return -error;
	return -rte_eth_dev_adjust_nb_rx_tx_desc(port, rx_descriptors, tx_descriptors);
}

int
tg_port_queue(uint16_t port, uint16_t queue, struct tg_pool *pool, uint16_t rx_descriptors,
	      uint16_t tx_descriptors)
{
	int socket = rte_eth_dev_socket_id(port);
	int error = rte_eth_rx_queue_setup(port, queue, rx_descriptors, socket, NULL, pool->mempool);

	if (error == 0)
		error = rte_eth_tx_queue_setup(port, queue, tx_descriptors, socket, NULL);
	return -error;
}

int
tg_port_start(uint16_t port)
{
	int error = rte_eth_dev_start(port);

	if (error == 0)
		rte_eth_promiscuous_enable(port);
	return -error;
}

/* Stops the port and unplugs its device: what the driver holds goes back to the mempools. */
void
tg_port_unplug(uint16_t port)
{
	struct rte_eth_dev_info info;
	int known = rte_eth_dev_info_get(port, &info) == 0;

	rte_eth_dev_stop(port);
	rte_eth_dev_close(port);
	if (known && info.device != NULL)
		rte_dev_remove(info.device);
}

void
tg_port_counters(uint16_t port, struct tg_counters *counters)
{
	struct rte_eth_stats stats;

	memset(counters, 0, sizeof(*counters));
	if (rte_eth_stats_get(port, &stats) == 0) {
		counters->missed = stats.imissed;
		counters->no_mbuf = stats.rx_nombuf;
		counters->rx_errors = stats.ierrors;
		counters->tx_errors = stats.oerrors;
	}
}

/* 1: the port has a link; 0: it has none; -1: the driver cannot tell. */
int
tg_port_link(uint16_t port)
{
	struct rte_eth_link link;

	return rte_eth_link_get_nowait(port, &link) == 0 ? link.link_status : -1;
}

/* Writes up to `n` names of 64 bytes and their values; returns how many there are, or a negative error. */
int
tg_port_xstats(uint16_t port, char (*names)[64], uint64_t *values, int n)
{
	struct rte_eth_xstat_name *all;
	struct rte_eth_xstat *stats;
	int count = rte_eth_xstats_get_names(port, NULL, 0);

	if (count <= 0)
		return count;
	all = calloc(count, sizeof(*all));
	stats = calloc(count, sizeof(*stats));
	if (all == NULL || stats == NULL || rte_eth_xstats_get_names(port, all, count) != count ||
	    rte_eth_xstats_get(port, stats, count) != count)
		count = -EIO;
	for (int i = 0; i < count && i < n; i++) {
		strncpy(names[i], all[stats[i].id].name, 63);
		values[i] = stats[i].value;
	}
	free(all);
	free(stats);
	return count;
}

/* --- queues ------------------------------------------------------------------------------------------ */

/* Receives up to `n` frames; returns how many. */
uint16_t
tg_rx(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n)
{
	uint16_t got = rte_eth_rx_burst(port, queue, mbufs, n);

	/* Where headers are, but for drivers that leave more or less room in front. */
	for (uint16_t i = 0; i < got; i++)
		rte_prefetch0((char *)(mbufs[i] + 1) + RTE_PKTMBUF_HEADROOM);
	return got;
}

/* Frees a frame that was received and cannot be used. */
void
tg_free(struct rte_mbuf *mbuf)
{
	rte_pktmbuf_free(mbuf);
}

static uint64_t
tg_offload_flags(uint8_t flags)
{
	uint64_t wanted = flags & TG_TX_TCP ? RTE_MBUF_F_TX_TCP_CKSUM : RTE_MBUF_F_TX_UDP_CKSUM;

	wanted |= flags & TG_TX_IPV4 ? RTE_MBUF_F_TX_IPV4 : RTE_MBUF_F_TX_IPV6;
	if (flags & TG_TX_SEGMENT) {
		wanted |= RTE_MBUF_F_TX_TCP_SEG;
		if (flags & TG_TX_IPV4)
			wanted |= RTE_MBUF_F_TX_IP_CKSUM;
	}
	return wanted;
}

/*
 * Says what the card is to do for the frame at `data`, by flags as in ffi.rs: write the transport checksum, whose field holds the sum of the pseudo-header; and cut the frame into segments of
 * `segment_bytes`, if not 0.
 */
void
tg_offload(struct rte_mbuf *mbuf, uint8_t *data, uint8_t flags, uint8_t l2_len, uint16_t l3_len,
	   uint8_t l4_len, uint16_t segment_bytes)
{
	mbuf->ol_flags = tg_offload_flags(flags);
	mbuf->tx_offload = 0;
	mbuf->l2_len = l2_len;
	mbuf->l3_len = l3_len;
	if (segment_bytes == 0)
		return;
	mbuf->l4_len = l4_len;
	mbuf->tso_segsz = segment_bytes;
	/* The pseudo-header's sum is without the length, and the card writes IPv4's own checksum. */
	struct rte_tcp_hdr *tcp = (struct rte_tcp_hdr *)(data + l2_len + l3_len);
	if (flags & TG_TX_IPV4) {
		struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(data + l2_len);

		ip->hdr_checksum = 0;
		tcp->cksum = rte_ipv4_phdr_cksum(ip, RTE_MBUF_F_TX_TCP_SEG);
	} else {
		struct rte_ipv6_hdr *ip = (struct rte_ipv6_hdr *)(data + l2_len);

		tcp->cksum = rte_ipv6_phdr_cksum(ip, RTE_MBUF_F_TX_TCP_SEG);
	}
}

/* Lets the driver look at frames for which the card is to do something; returns how many it can take. */
uint16_t
tg_tx_prepare(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n)
{
	return rte_eth_tx_prepare(port, queue, mbufs, n);
}

/* Sends up to `n` frames in order; returns how many the driver took. */
uint16_t
tg_tx(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n)
{
	return rte_eth_tx_burst(port, queue, mbufs, n);
}

/* Asks the driver to free what it has sent. */
void
tg_tx_reclaim(uint16_t port, uint16_t queue)
{
	rte_eth_tx_done_cleanup(port, queue, 0);
}

/* The descriptor that becomes readable when frames come; -1 if the driver has none. */
int
tg_interrupt_fd(uint16_t port, uint16_t queue)
{
	return rte_eth_dev_rx_intr_ctl_q_get_fd(port, queue);
}

/* 0, or the error number. */
int
tg_interrupt_enable(uint16_t port, uint16_t queue)
{
	return -rte_eth_dev_rx_intr_enable(port, queue);
}

/*
 * Makes a descriptor that is readable once for each signal of what it watches; -1 if there is none to be had. A
 * driver's own descriptor may be readable for ever after its first signal: net_vhost's is an epoll descriptor
 * around the peer's eventfd, which nobody reads.
 */
int
tg_edges(void)
{
	return epoll_create1(EPOLL_CLOEXEC);
}

/* Watches a descriptor, if it does not yet. 0, or the error number. */
int
tg_edges_watch(int edges, int fd)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };

	return epoll_ctl(edges, EPOLL_CTL_ADD, fd, &event) == 0 || errno == EEXIST ? 0 : errno;
}

/* Turns the interrupt off and takes the signal that `edges` (if not -1) may have got from `fd`. */
void
tg_interrupt_disable(uint16_t port, uint16_t queue, int fd, int edges)
{
	struct epoll_event event;
	uint64_t count;

	rte_eth_dev_rx_intr_disable(port, queue);
	if (edges >= 0 && epoll_wait(edges, &event, 1, 0) == 1 && read(fd, &count, sizeof(count)) < 0)
		(void)!read(fd, &count, sizeof(uint32_t)); /* UIO: a number of four bytes */
}
