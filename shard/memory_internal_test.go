// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"testing"
	"time"

	"github.com/berth-dev/berth/bounds"
)

// S7, L3: the space that takes most of the memory suffers first, and small ones never do.
func TestHostileTheHeaviestSpaceSuffersWhenMemoryIsShort(t *testing.T) {
	const mib = 1 << 20
	account := func(memory int64) *bounds.Account {
		a := bounds.NewAccount(nil)
		a.Add(bounds.MemoryBytes, memory*mib)
		return a
	}
	heavy, light, small := account(300), account(100), account(1)
	heavy.Add(bounds.MemoryBytes, -100*mib)
	heavy.Add(bounds.StoreBytes, 100*mib)
	all := map[string]*bounds.Account{"heavy": heavy, "light": light, "small": small}
	used, garbage := int64(0), int64(0)
	g := &memoryGuard{memory: Memory{
		Limit: 1000 * mib, Used: func() int64 { return used * mib },
		Collect: func() { used -= garbage },
	}}
	now := time.Now()
	look := func(spaces map[string]*bounds.Account) relief {
		now = now.Add(time.Minute)
		return g.look(now, func() map[string]*bounds.Account { return spaces })
	}
	refused := func(a *bounds.Account) bool {
		err := a.Take(bounds.MemoryBytes, 1)
		if err == nil {
			a.Give(bounds.MemoryBytes, 1)
		}
		return err != nil
	}

	used = 700
	if do := look(all); do.strain != nil || do.sleep {
		t.Errorf("at 70 %%: %+v", do)
	}
	used = 760
	do := look(all)
	if do.strain != heavy || do.sleep {
		t.Fatalf("at 76 %%: %+v, want that the heavy one is put under strain", do)
	}
	do.strain.Strain(true)
	if !refused(heavy) || refused(light) {
		t.Errorf("requests are refused: heavy %t, light %t, want true, false", refused(heavy), refused(light))
	}
	if do := look(all); do.strain != nil {
		t.Errorf("at 76 %% again: %+v", do)
	}
	used, garbage = 900, 200
	if do := look(all); do.sleep {
		t.Errorf("at 90 %%, most of it garbage: %+v", do)
	}
	used, garbage = 900, 10
	if do := look(all); !do.sleep || do.space != "heavy" {
		t.Errorf("at 90 %%: %+v, want that the heavy one sleeps", do)
	}
	used = 900
	if do := look(map[string]*bounds.Account{"small": small}); do.sleep || do.strain != nil {
		t.Errorf("a small space suffers: %+v", do)
	}
	used = 600
	if look(all); refused(heavy) {
		t.Error("the strain is not ended")
	}
}
