// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/berth-dev/berth/internal/clientaddr"
	"github.com/berth-dev/berth/vcluster/pki"
)

const (
	// maxToken bounds the tokens that are looked at: a service account's has
	// about one kilobyte.
	maxToken = 16 << 10
	// leastSpaces and mostSpaces bound the spaces whose keys are held: of all that may be awake, and of as many that
	// are asked for while they sleep. Those of one space take up to 16 KiB.
	leastSpaces, mostSpaces = 256, 8192
	// rememberedBearers bounds the credentials of each space that are known again
	// without a look at their signature.
	rememberedBearers = 64
	// rememberedRefusals bounds the credentials of nobody that are known again.
	rememberedRefusals = 4096

	// Bounds of the checks of signatures that wait, of all clients and of one. A
	// check takes a tenth of a millisecond.
	maxChecks          = 256
	maxChecksPerClient = 16
)

// ErrBusy says that a signature is not checked now.
var ErrBusy = errors.New("too many credentials are being checked")

// Verifier finds out who has a credential of a space. It is safe for concurrent use.
//
// Anybody may ask, as often as they like and with what they like. So the checks of
// signatures are bounded, what was refused is remembered, and a space that is not
// there costs the caller what one costs that is.
type Verifier struct {
	dir   func(space string) string
	clock clock.PassiveClock

	spaces  *lru.Cache // of names to *keys
	refused *lru.Cache // of [sha256.Size]byte to nothing
	nobody  *keys      // of spaces that are not there
	waiting *clientaddr.Counter
	checks  *semaphore.Weighted
}

// New returns a verifier for spaces whose keys are below dir. At most spacesMax of
// them are awake at once; 0 if that has no bound.
func New(dir func(space string) string, spacesMax int, c clock.PassiveClock) (*Verifier, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	nobody := newKeys()
	nobody.cas, nobody.tokens = append(nobody.cas, &key.PublicKey), append(nobody.tokens, pki.RetiredKey{Key: &key.PublicKey})
	remembered := min(max(leastSpaces, 2*spacesMax), mostSpaces)
	return &Verifier{
		dir: dir, clock: c, nobody: nobody,
		spaces: lru.New(remembered), refused: lru.New(rememberedRefusals),
		waiting: clientaddr.NewCounter(maxChecks, maxChecksPerClient),
		// What strangers have checked must leave processors to those who are known.
		checks: semaphore.NewWeighted(int64(max(1, runtime.GOMAXPROCS(0)/2))),
	}, nil
}

// Forget makes the next request look at the space's files again, and lets go of
// what is remembered of the space.
func (c *Verifier) Forget(space string) { c.spaces.Remove(space) }

// bearer is the token of a request, as the API server finds it; empty if there is none.
func bearer(r *http.Request) string {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "Bearer") { // RFC 7235, section 2.1
		return ""
	}
	text, _, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
	return text
}

// Verify reports whether a request bears a credential of a space. It fails when
// that can't be found out now.
func (c *Verifier) Verify(space string, r *http.Request) (bool, error) {
	var offered []credential
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		offered = append(offered, certificate{r.TLS.PeerCertificates[0]})
	}
	if text := bearer(r); text != "" && len(text) <= maxToken {
		offered = append(offered, token(text))
	}
	if len(offered) == 0 || len(validation.IsDNS1123Label(space)) > 0 {
		return false, nil
	}
	var known *keys
	if found, ok := c.spaces.Get(space); ok {
		known = found.(*keys)
	}
	now := c.clock.Now()
	for _, o := range offered {
		if known != nil && known.remembers(o, now) {
			return true, nil
		}
	}
	// They may have been renewed, or not be read yet.
	dir := filepath.Join(c.dir(space), "pki")
	stamps := stampsOf(dir)
	if known == nil || known.files != stamps {
		known = c.nobody
		if read, err := readKeys(dir, now); err == nil {
			read.files = stamps
			c.spaces.Add(space, read)
			known = read
		}
	}
	for _, o := range offered {
		if good, err := c.check(r.Context(), space, known, o, clientaddr.OfRemote(r.RemoteAddr), now); good || err != nil {
			return good, err
		}
	}
	return false, nil
}

// check looks at a signature, in its turn.
func (c *Verifier) check(ctx context.Context, space string, k *keys, o credential, client netip.Prefix, now time.Time) (bool, error) {
	refusal := sha256.Sum256(fmt.Appendf(nil, "%s %v %x", space, k.files, o.sum()))
	if _, is := c.refused.Get(refusal); is {
		return false, nil
	}
	if !c.waiting.Take(client) {
		return false, ErrBusy
	}
	defer c.waiting.Give(client)
	if c.checks.Acquire(ctx, 1) != nil {
		return false, ErrBusy
	}
	defer c.checks.Release(1)
	until, good := o.signedBy(k)
	if !good || !now.Before(until) {
		c.refused.Add(refusal, nil)
		return false, nil
	}
	if now.Before(o.from()) {
		return false, nil
	}
	k.seen.Add(o.sum(), until)
	return true, nil
}
