// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenantfields

import (
	"encoding/json"
	"errors"
	"fmt"
)

const (
	// maxKey is how long a key that means "tenant" may be, with escapes and quotation marks. Longer keys are others.
	maxKey = 64
	// maxValue is how long a value of metadata.tenant may be. Longer ones are of another tenant.
	maxValue = 512
)

// A comma between two members is held until it is known which of them stay.
type comma uint8

const (
	noComma comma = iota
	heldComma
	firstComma // it has nothing before it, because the members there were removed
)

// remover checks metadata.tenant of the API object in a JSON document, and replaces it with spaces. All occurrences count,
// because decoders take the last one. Nothing else changes, and neither does the length.
type remover struct {
	scanner
	tenant  string
	begun   bool
	over    bool // the object has ended, or it is none
	out     []byte
	key     []byte // the key that is held, with quotation marks
	longKey bool   // the key is not held any more
	comma   comma
	first   bool // the next comma has nothing before it
	within  bool // what is read is removed
	colon   bool // of the member that is removed
	value   []byte
	err     error
}

var errNoColon = errors.New(`metadata.tenant: there is no colon behind "tenant"; write JSON`)

func newRemover(tenant string) *remover {
	return &remover{scanner: scanner{root: apiObject}, tenant: tenant}
}

// remove returns the next part of the document without the field. The result is valid until the next call. It fails if the
// field has another value.
func (m *remover) remove(part []byte) ([]byte, error) {
	m.out = m.out[:0]
	for i := 0; i < len(part); i++ {
		if m.over {
			m.out = append(m.out, part[i:]...)
			break
		}
		m.next(part[i])
		if m.err != nil {
			return nil, m.err
		}
	}
	return m.out, nil
}

// finish returns the last part again, with what was held.
func (m *remover) finish() []byte {
	m.release(',')
	m.out = append(m.out, m.key...)
	m.key = nil
	return m.out
}

func (m *remover) next(c byte) {
	if !m.begun && !isSpace(c) {
		m.begun = true
		m.over = c != '{'
	}
	before, inKey := m.inMetadata(), m.in == keyString && m.depth > 0 && m.levels[m.depth-1].role == metadata
	if m.within && before && (c == ',' || c == '}') {
		m.removed()
	}
	m.step(c)
	m.over = m.over || m.begun && m.depth == 0
	switch {
	case m.within:
		m.blank(c)
	case inKey:
		m.inKey(c)
	case !before || isSpace(c):
		m.out = append(m.out, c)
	case c == '"' && m.in == keyString:
		m.key, m.longKey = append(m.key[:0], c), false
	case c == ',':
		m.release(',')
		m.comma = heldComma
		if m.first {
			m.comma, m.first = firstComma, false
		}
	default:
		m.release(',') // before a brace, where it is not valid: what is not valid stays so
		m.first = m.first && c != '}'
		m.out = append(m.out, c)
	}
}

// inKey reads a byte of a key of metadata.
func (m *remover) inKey(c byte) {
	if m.longKey {
		m.out = append(m.out, c)
		return
	}
	m.key = append(m.key, c)
	switch ended := m.in == noString; {
	case ended && m.levels[m.depth-1].member == tenantMember:
		m.within, m.colon, m.value = true, false, m.value[:0]
		for range m.key {
			m.out = append(m.out, ' ')
		}
		m.key = m.key[:0]
	case ended || len(m.key) > maxKey:
		m.longKey = !ended
		between := byte(',')
		if m.comma == firstComma {
			between = ' '
		}
		m.release(between)
		m.out = append(m.out, m.key...)
		m.key = m.key[:0]
	}
}

// blank reads a byte of what is removed.
func (m *remover) blank(c byte) {
	switch {
	case len(m.value) > 0 || !isSpace(c) && (c != ':' || m.colon):
		if len(m.value) <= maxValue {
			m.value = append(m.value, c) // with what makes it invalid
		}
	case c == ':':
		m.colon = true
	}
	m.out = append(m.out, ' ')
}

// removed ends a member that is removed, together with the comma before it, or else the one behind it.
func (m *remover) removed() {
	m.within = false
	if m.err = checkTenant(m.tenant, m.value); m.err == nil && !m.colon {
		m.err = errNoColon // without the member, the document would be valid
	}
	m.first = m.comma != heldComma
	m.release(' ')
}

// release writes a held comma.
func (m *remover) release(as byte) {
	if m.comma != noComma {
		m.out = append(m.out, as)
	}
	m.comma = noComma
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// checkTenant fails unless a JSON value is the name of the tenant. As with the namespace, an empty value stands for that of
// the URL.
func checkTenant(tenant string, value []byte) error {
	var got *string
	if len(value) <= maxValue && json.Unmarshal(value, &got) == nil && (got == nil || *got == "" || *got == tenant) {
		return nil
	}
	return fmt.Errorf("metadata.tenant: Invalid value: %.100s: the URL is for the tenant %s; remove the field, or use a URL of the other tenant", value, tenant)
}
