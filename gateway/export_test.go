// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import "fmt"

// DistinctUsers returns users that don't count as one.
func (l *Limiter) DistinctUsers() (users [3]string) {
	taken := map[uint8]bool{}
	for i := 0; len(taken) < len(users); i++ {
		if name := fmt.Sprint("user-", i); !taken[l.userFlow(name)] {
			users[len(taken)] = name
			taken[l.userFlow(name)] = true
		}
	}
	return users
}
