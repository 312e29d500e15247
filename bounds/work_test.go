// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package bounds_test

import (
	"testing"

	"github.com/berth-dev/berth/bounds"
)

func TestWorkYieldsToWhatItTakesTurnsWith(t *testing.T) {
	var none *bounds.Work
	if none.Yield() || (&bounds.Work{}).Yield() {
		t.Error("work without turns claims that it has yielded")
	}
	yields := 0
	work := &bounds.Work{}
	work.ByTurns(bounds.Turns{Yield: func() { yields++ }})
	if !work.Yield() || yields != 1 {
		t.Errorf("it has yielded %d times", yields)
	}
}
