// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// A library to preload: it records, in the file POWER_JOURNAL, what the process does to the file POWER_STORE and to
// SQLite's files beside it, in the order in which it happens, so that a test can tell what a disk has for certain when
// the power fails. A record is the kind, the length of the path and of the data as 32-bit numbers, the offset as a
// 64-bit number (all in the machine's order), the path, the data.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CREATED = 1, WRITTEN, TRUNCATED, SYNCED, UNLINKED, DIRECTORY_SYNCED };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int journal = -1;
static const char *store;
static char directory[PATH_MAX];

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void) {
	const char *to = getenv("POWER_JOURNAL");
	char copy[PATH_MAX];
	store = getenv("POWER_STORE");
	if (to == NULL || store == NULL) return;
	snprintf(copy, sizeof copy, "%s", store);
	snprintf(directory, sizeof directory, "%s", dirname(copy));
	journal = REAL(open)(to, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (journal < 0) abort();
}

// ours reports whether a path is of the store. The index of the log is not: SQLite makes it anew.
static int ours(const char *path) {
	size_t n;
	if (journal < 0 || path == NULL) return 0;
	n = strlen(store);
	if (strncmp(path, store, n) != 0) return 0;
	return path[n] == 0 || strcmp(path + n, "-wal") == 0 || strcmp(path + n, "-journal") == 0;
}

static void record(uint32_t kind, const char *path, int64_t offset, const void *data, size_t size) {
	struct { uint32_t kind, path, data, zero; int64_t offset; } head = {kind, strlen(path), size, 0, offset};
	struct iovec parts[] = {{&head, sizeof head}, {(void *)path, head.path}, {(void *)data, size}};
	if (writev(journal, parts, 3) != (ssize_t)(sizeof head + head.path + size)) abort();
}

// path_of is the path of an open file, "" if there is none any more.
static const char *path_of(int fd, char path[PATH_MAX]) {
	char link[64];
	ssize_t n;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	n = readlink(link, path, PATH_MAX - 1);
	path[n < 0 ? 0 : n] = 0;
	return path;
}

static int opened(__typeof__(&open) real, const char *path, int flags, mode_t mode) {
	int fd, created;
	if (!ours(path) || !(flags & O_CREAT)) return real(path, flags, mode);
	pthread_mutex_lock(&mutex);
	created = access(path, F_OK) != 0;
	fd = real(path, flags, mode);
	if (fd >= 0 && created) record(CREATED, path, 0, "", 0);
	pthread_mutex_unlock(&mutex);
	return fd;
}

#define OPEN(name)                                                     \
	int name(const char *path, int flags, ...) {                   \
		va_list rest;                                          \
		mode_t mode = 0;                                       \
		va_start(rest, flags);                                 \
		if (flags & O_CREAT) mode = va_arg(rest, mode_t);      \
		va_end(rest);                                          \
		return opened(REAL(name), path, flags, mode);          \
	}
OPEN(open)
OPEN(open64)

#define WRITE(name, offset_type)                                                            \
	ssize_t name(int fd, const void *data, size_t size, offset_type offset) {           \
		char path[PATH_MAX];                                                        \
		ssize_t n;                                                                  \
		if (!ours(path_of(fd, path))) return REAL(name)(fd, data, size, offset);    \
		pthread_mutex_lock(&mutex);                                                 \
		n = REAL(name)(fd, data, size, offset);                                     \
		if (n > 0) record(WRITTEN, path, offset, data, n);                          \
		pthread_mutex_unlock(&mutex);                                               \
		return n;                                                                   \
	}
WRITE(pwrite, off_t)
WRITE(pwrite64, off64_t)

// SQLite is built to write at offsets alone.
ssize_t write(int fd, const void *data, size_t size) {
	char path[PATH_MAX];
	if (ours(path_of(fd, path))) abort();
	return REAL(write)(fd, data, size);
}

#define TRUNCATE(name, offset_type)                                             \
	int name(int fd, offset_type size) {                                    \
		char path[PATH_MAX];                                            \
		int result;                                                     \
		if (!ours(path_of(fd, path))) return REAL(name)(fd, size);      \
		pthread_mutex_lock(&mutex);                                     \
		result = REAL(name)(fd, size);                                  \
		if (result == 0) record(TRUNCATED, path, size, "", 0);          \
		pthread_mutex_unlock(&mutex);                                   \
		return result;                                                  \
	}
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

// What is written while a sync is under way may or may not be on the disk after it: as this holds the mutex, it is.
#define SYNC(name)                                                                         \
	int name(int fd) {                                                                 \
		char path[PATH_MAX];                                                       \
		int result, of_directory;                                                  \
		of_directory = journal >= 0 && strcmp(path_of(fd, path), directory) == 0;  \
		if (!of_directory && !ours(path_of(fd, path))) return REAL(name)(fd);      \
		pthread_mutex_lock(&mutex);                                                \
		result = REAL(name)(fd);                                                   \
		if (result == 0) record(of_directory ? DIRECTORY_SYNCED : SYNCED, path, 0, "", 0); \
		pthread_mutex_unlock(&mutex);                                              \
		return result;                                                             \
	}
SYNC(fsync)
SYNC(fdatasync)

int unlink(const char *path) {
	int result;
	if (!ours(path)) return REAL(unlink)(path);
	pthread_mutex_lock(&mutex);
	result = REAL(unlink)(path);
	if (result == 0) record(UNLINKED, path, 0, "", 0);
	pthread_mutex_unlock(&mutex);
	return result;
}
