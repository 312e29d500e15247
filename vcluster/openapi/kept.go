// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"crypto/sha256"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/berth-dev/berth/bounds"
)

// keptDocuments is how many documents of version 2 with CRDs are kept: at most one for each space, that of the CRDs that
// its clients lately asked about.
const keptDocuments = 8

// documentUser is a space as a user of documents of version 2.
type documentUser struct {
	// making is held while a document is made for the space, or waits for its turn to be: of a space one waits at most, so
	// that spaces take turns however many requests each of them has.
	making  *semaphore.Weighted
	account *bounds.Account // of which kept documents take
	gone    atomic.Bool     // it keeps no documents any more
}

func newDocumentUser(a *bounds.Account) *documentUser {
	return &documentUser{making: semaphore.NewWeighted(1), account: a}
}

type documentKey [sha256.Size]byte

// keptDocument is one that spaces with equal CRDs share.
type keptDocument struct {
	key     documentKey
	handler http.Handler
	size    int64 // about what it takes; it is accounted to each of its users
	users   map[*documentUser]struct{}
}

// documentCache keeps documents as long as spaces use them, and the lately used of them if there are too many. It is safe
// for concurrent use.
type documentCache struct {
	mu   sync.Mutex
	kept []*keptDocument // the last used first
}

// get returns a document that is kept. It is the user's only one from then on.
func (c *documentCache) get(u *documentUser, key documentKey) (http.Handler, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.kept {
		if d.key == key {
			c.use(u, d)
			return d.handler, true
		}
	}
	return nil, false
}

// add keeps a document for a user, in place of the one that it had, if the user's account allows that.
func (c *documentCache) add(u *documentUser, key documentKey, h http.Handler, size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.use(u, &keptDocument{key: key, handler: h, size: size, users: map[*documentUser]struct{}{}})
}

// use puts a document to the front. The cache is locked.
func (c *documentCache) use(u *documentUser, d *keptDocument) {
	c.release(u, d)
	if _, uses := d.users[u]; !uses {
		if u.gone.Load() || u.account.Take(bounds.MemoryBytes, d.size) != nil {
			return
		}
		d.users[u] = struct{}{}
	}
	c.kept = slices.DeleteFunc(c.kept, func(other *keptDocument) bool { return other == d })
	c.kept = slices.Insert(c.kept, 0, d)
	for len(c.kept) > keptDocuments {
		last := c.kept[keptDocuments]
		for u := range last.users {
			u.account.Give(bounds.MemoryBytes, last.size)
		}
		c.kept = slices.Delete(c.kept, keptDocuments, keptDocuments+1)
	}
}

// release drops what nobody but u has used, except for one document. The cache is locked.
func (c *documentCache) release(u *documentUser, except *keptDocument) {
	c.kept = slices.DeleteFunc(c.kept, func(d *keptDocument) bool {
		if _, uses := d.users[u]; uses && d != except {
			delete(d.users, u)
			u.account.Give(bounds.MemoryBytes, d.size)
		}
		return len(d.users) == 0
	})
}

// leave drops what is kept for a user, and keeps nothing for it any more.
func (c *documentCache) leave(u *documentUser) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u.gone.Store(true)
	c.release(u, nil)
}
