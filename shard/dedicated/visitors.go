// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dedicated

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/identity"
)

// sharesPath is the path of the question whether the space gives a visitor any rights: POST of an [identity.Identity].
const sharesPath = "/shares"

// maxVisitor limits an identity, in bytes.
const maxVisitor = 256 << 10

const (
	// rememberedStrangers is for how many clients it is remembered that a space gives them nothing, and strangerTime for how long: a client
	// that nobody limits must not keep a process busy with questions. What a space gives is not remembered.
	rememberedStrangers = 256
	strangerTime        = time.Second
)

// GivesAccess asks the process whether its space gives a visitor any rights. It doesn't if the process doesn't say so.
func (p *Process) GivesAccess(ctx context.Context, visitor *identity.Identity) bool {
	data, err := json.Marshal(visitor)
	if err != nil {
		return false
	}
	sum := sha256.Sum256(data)
	if until, ok := p.strangers.Get(sum); ok && time.Now().Before(until.(time.Time)) {
		return false
	}
	shares := p.askAccess(ctx, data)
	if !shares {
		p.strangers.Add(sum, time.Now().Add(strangerTime))
	}
	return shares
}

func (p *Process) askAccess(ctx context.Context, data []byte) bool {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	req, err := control.NewRequest(ctx, http.MethodPost, sharesPath, bytes.NewReader(data))
	if err != nil {
		return false
	}
	resp, err := p.client.Send(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	var shares bool
	return json.NewDecoder(io.LimitReader(resp.Body, 64)).Decode(&shares) == nil && shares
}

// ServeAccess serves the question.
func ServeAccess(mux *http.ServeMux, shares func(ctx context.Context, visitor *identity.Identity) bool) {
	mux.Handle("POST "+sharesPath, control.Answer(func(r *http.Request) (any, error) {
		visitor := &identity.Identity{}
		if err := json.NewDecoder(io.LimitReader(r.Body, maxVisitor)).Decode(visitor); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return shares(r.Context(), visitor), nil
	}))
}
