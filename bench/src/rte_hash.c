/* DPDK's hash table under the load of tables_signature: reads keys from a file, then measures on request.
 *
 * usage: rte_hash [EAL options] -- FILE
 * FILE: three counts (uint64), then keys of 16 bytes: those of the table, hits, misses.
 * Prints "ready BYTES"; for each line "hit" or "miss" on its input, ns of its thread a lookup.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_eal.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_malloc.h>

#define BATCH 32

struct key {
	uint64_t words[2];
};

static double lookups(const struct rte_hash *table, const struct key *keys, uint64_t count, uint64_t *found)
{
	const void *pointers[BATCH];
	int32_t places[BATCH];
	struct timespec begin, end;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
	for (uint64_t at = 0; at + BATCH <= count; at += BATCH) {
		for (int i = 0; i < BATCH; i++)
			pointers[i] = &keys[at + i];
		rte_hash_lookup_bulk(table, pointers, BATCH, places);
		for (int i = 0; i < BATCH; i++)
			*found += places[i] >= 0;
	}
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
	return ((end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec)) / count;
}

static void *read_keys(FILE *file, uint64_t count)
{
	struct key *keys = malloc(count * sizeof(*keys));

	if (keys == NULL || fread(keys, sizeof(*keys), count, file) != count) {
		fprintf(stderr, "rte_hash: the file ends too early\n");
		exit(1);
	}
	return keys;
}

int main(int argc, char **argv)
{
	int eal = rte_eal_init(argc, argv);
	uint64_t counts[3], found = 0;
	char line[16];

	if (eal < 0 || argc - eal < 2)
		return 1;
	FILE *file = fopen(argv[eal + 1], "rb");
	if (file == NULL || fread(counts, sizeof(counts), 1, file) != 1)
		return 1;
	struct key *keys = read_keys(file, counts[0]);
	struct key *hits = read_keys(file, counts[1]);
	struct key *misses = read_keys(file, counts[2]);
	struct rte_hash_parameters parameters = {
		.name = "sessions",
		/* room for every key needs some more: buckets of 8, two choices */
		.entries = counts[0] + counts[0] / 8,
		.key_len = sizeof(struct key),
		.hash_func = rte_hash_crc,
		.hash_func_init_val = 0,
		.socket_id = SOCKET_ID_ANY,
	};
	struct rte_hash *table = rte_hash_create(&parameters);
	if (table == NULL) {
		fprintf(stderr, "rte_hash: no memory for the table\n");
		return 1;
	}
	for (uint64_t at = 0; at < counts[0]; at++) {
		if (rte_hash_add_key(table, &keys[at]) < 0) {
			fprintf(stderr, "rte_hash: key %" PRIu64 " refused\n", at);
			return 1;
		}
	}
	struct rte_malloc_socket_stats stats = {0};
	for (int socket = 0; socket < RTE_MAX_NUMA_NODES; socket++) {
		struct rte_malloc_socket_stats one;
		if (rte_malloc_get_socket_stats(socket, &one) == 0)
			stats.heap_allocsz_bytes += one.heap_allocsz_bytes;
	}
	printf("ready %zu\n", stats.heap_allocsz_bytes);
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin) != NULL) {
		int hit = strcmp(line, "hit\n") == 0;
		uint64_t count = hit ? counts[1] : counts[2];
		double ns = lookups(table, hit ? hits : misses, count, &found);

		if (hit ? found != count / BATCH * BATCH : found != 0) {
			fprintf(stderr, "rte_hash: %" PRIu64 " found\n", found);
			return 1;
		}
		found = 0;
		printf("%.4f\n", ns);
		fflush(stdout);
	}
	return 0;
}
