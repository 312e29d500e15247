// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package flags

import (
	"errors"
	"fmt"

	"github.com/berth-dev/berth/internal/fielderror"
)

// Error names the flag that set the wrong value.
func Error(err error) error {
	if field, ok := errors.AsType[*fielderror.Error](err); ok {
		return fmt.Errorf("--%w", field)
	}
	return err
}
