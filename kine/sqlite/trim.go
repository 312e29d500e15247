// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cgo

package sqlite

/*
#include <stddef.h>

// glibc's. Other C libraries give memory back by themselves.
extern int malloc_trim(size_t) __attribute__((weak));

static void give_back(void) {
	if (malloc_trim) malloc_trim(0);
}
*/
import "C"

// FreeOSMemory hands the operating system what SQLite has freed in all stores. glibc keeps it otherwise, for each thread that
// was used. It takes milliseconds; [debug.FreeOSMemory] is for what Go has freed.
func FreeOSMemory() { C.give_back() }
