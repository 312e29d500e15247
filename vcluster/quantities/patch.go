// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package quantities

import (
	"encoding/json"
	"fmt"
	"strings"
)

// CheckPatch returns an error if a JSON patch puts a quantity that [Check] refuses into an object. It also refuses to copy or move a
// value of another type to where a quantity can be: what it is like is not known then. A text that is no JSON patch has nothing to
// check.
func (s *Type) CheckPatch(patch []byte) error {
	if s == nil {
		return nil
	}
	var operations []map[string]*json.RawMessage
	if json.Unmarshal(patch, &operations) != nil {
		return nil
	}
	suspect := Suspect(patch)
	for i, o := range operations {
		if err := checkOperation(o, s, suspect); err != nil {
			return fmt.Errorf("[%d].%w", i, err)
		}
	}
	return nil
}

func checkOperation(operation map[string]*json.RawMessage, of *Type, suspect bool) error {
	path, _ := text(operation["path"])
	to := of.at(path)
	if to == nil {
		return nil
	}
	if op, _ := text(operation["op"]); op == "copy" || op == "move" {
		if from, _ := text(operation["from"]); of.at(from) != to {
			return fmt.Errorf("from: a value of %s can't be put at %s, where a quantity can be: use add, with the value", from, path)
		}
		return nil
	}
	if value := operation["value"]; value != nil && suspect {
		return checkJSON(*value, to, "value")
	}
	return nil
}

func text(raw *json.RawMessage) (string, bool) {
	var s string
	ok := raw != nil && json.Unmarshal(*raw, &s) == nil
	return s, ok
}

// at is what a path of a JSON patch leads to.
func (s *Type) at(path string) *Type {
	path = strings.TrimPrefix(path, "/")
	if path == "" {
		return s
	}
	for name := range strings.SplitSeq(path, "/") {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		if item := s.item(); item != nil {
			s = item
		} else {
			s = s.member(name)
		}
	}
	return s
}
