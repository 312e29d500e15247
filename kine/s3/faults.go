// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"errors"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/mirror"
)

var (
	// errMissing means that there is no such object.
	errMissing = errors.New("the object is missing")
	// errExists means that an object is not created, because there is one.
	errExists = errors.New("the object exists")
	// errUnconditional means that another process could overwrite what this one writes.
	errUnconditional = errors.New("the storage doesn't support conditional writes (If-None-Match), by which Berth keeps two processes from writing " +
		"to one store; use a storage that does")
)

// maxText is how many bytes of an error of the storage are in messages.
const maxText = 2048

// callError is an error of a call to the storage.
type callError struct {
	doing string // what, and the object
	err   error
}

func (e *callError) Error() string {
	text := e.err.Error()
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + " ..."
	}
	if code := minio.ToErrorResponse(e.err).Code; code != "" && len(code) < 100 {
		text = code + ": " + text
	}
	return e.doing + ": " + text
}

func (e *callError) Unwrap() error { return e.err }

// lostError makes an error a Lost one.
type lostError struct{ err error }

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// Fault classifies an error of the storage.
func (l *Log) Fault(err error) dbms.Fault {
	var lost *lostError
	var call *callError
	switch {
	case errors.As(err, &lost):
		return dbms.Lost
	case errors.Is(err, mirror.ErrTooLarge):
		return dbms.TooLarge
	case errors.Is(err, errUnconditional):
		return dbms.Failed
	case errors.As(err, &call) && denied(call.err):
		return dbms.Lost // until an admin allows it again
	case errors.As(err, &call):
		return faultOf(call.err)
	}
	return dbms.None
}

// denied reports whether the storage rejects the keys, or the bucket is missing.
func denied(err error) bool {
	status := minio.ToErrorResponse(err).StatusCode
	return faultOf(err) == dbms.Failed && (status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusNotFound)
}

// faultOf classifies an error of a request. Only a Lost one may have had an effect.
func faultOf(err error) dbms.Fault {
	var response minio.ErrorResponse
	if !errors.As(err, &response) {
		return dbms.Lost
	}
	full := []string{"QuotaExceeded", "StorageFull", "NoSpace", "InsufficientStorage"}
	for _, part := range full {
		if strings.Contains(response.Code, part) {
			return dbms.Full
		}
	}
	switch status := response.StatusCode; {
	case status == http.StatusInsufficientStorage:
		return dbms.Full
	case status == http.StatusRequestEntityTooLarge, response.Code == "EntityTooLarge":
		return dbms.TooLarge
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status == http.StatusConflict,
		response.Code == "RequestTimeout", response.Code == "SlowDown":
		return dbms.Lost // it may be tried again
	case status >= 400 && status < 500, status == http.StatusNotImplemented:
		return dbms.Failed
	}
	return dbms.Lost
}
