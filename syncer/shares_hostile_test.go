// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/sharing"
	"github.com/berth-dev/berth/syncer/shares"
)

// L3: an owner who changes a large shared object all the time writes no more to the host than the limit, whatever time that takes: each
// write is a version in the host's store until it is compacted.
func TestHostileChangesOfSharedObjectsAreFewBytes(t *testing.T) {
	env := newSharingEnv(t, "sharer-flood")
	var sent, changes atomic.Int64
	env.begin(func(c call, send func() (*http.Response, error)) (*http.Response, error) {
		if aboutShared(c) && c.writes() && c.Body != nil {
			body, err := io.ReadAll(c.Body)
			if err != nil {
				return nil, err
			}
			c.Body = io.NopCloser(bytes.NewReader(body))
			sent.Add(int64(len(body)))
		}
		return send()
	})
	env.configMap(t, "large", "children", "0")
	start := time.Now()
	for i := 0; time.Since(start) < 8*time.Second; i++ {
		env.patch(t, "large", fmt.Sprintf(`{"data":{"a":%q}}`, fmt.Sprintf("%07d", i)+strings.Repeat("a", 400<<10)))
		changes.Add(1)
	}
	const metadata = 64 << 10 // is not counted
	most := int64(sharing.MaxBytes + metadata + shares.BytesPerSecond*time.Since(start).Seconds())
	if sent.Load() > most || sent.Load() == 0 {
		t.Errorf("%d changes wrote %d KiB, of %d KiB that may be written", changes.Load(), sent.Load()>>10, most>>10)
	}
}
