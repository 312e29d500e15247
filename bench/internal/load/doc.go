// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package load has clients that write to spaces and read what they wrote, one request after the other, and counts the requests,
// the failed ones, and how long they took. The benchmarks of moves and upgrades call it, and the command bench/load.
//
// The clients of a [Load] repeat nothing: a request that the server asks to be repeated has failed. Those of a [Writer] repeat each write
// until it is acknowledged, and find out afterwards which acknowledged ones are lost. Neither decides where requests go. A [Service] does
// so for shards on one machine.
package load
