// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"crypto/tls"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/berth-dev/berth/kine/mirror"
)

const (
	regionParameter = "region"
	styleParameter  = "path-style"
	// defaultRegion is that of storages that have none.
	defaultRegion = "us-east-1"
	// maxPrefix is how many bytes a prefix may have: a key may have 1024.
	maxPrefix = 512
)

// target is what a DSN says, such as https://ACCESS-KEY:SECRET-KEY@storage.example:9000/BUCKET/PREFIX?region=R&path-style=true.
type target struct {
	*mirror.Target
	bucket string
	prefix string // empty, or ends with a slash
	region string
	lookup minio.BucketLookupType
	tls    *tls.Config
}

// bucketName is what all storages allow.
var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

func parse(c mirror.Config) (*target, error) {
	parsed, err := c.Parse("http", "https")
	if err != nil {
		return nil, fmt.Errorf("%w; for S3, it is https://ACCESS-KEY:SECRET-KEY@host:port/BUCKET/PREFIX", err)
	}
	t := &target{Target: parsed, region: defaultRegion}
	bucket, prefix, _ := strings.Cut(t.Path, "/")
	t.bucket, t.prefix = bucket, prefix
	if prefix != "" {
		t.prefix += "/"
	}
	parts := strings.Split(prefix, "/")
	switch {
	case len(t.Hosts) != 1:
		return nil, fmt.Errorf("the DSN has %d hosts, and must have one", len(t.Hosts))
	case t.User == "":
		return nil, errors.New("the DSN must have an access key and a secret key, as https://ACCESS-KEY:SECRET-KEY@host:port/BUCKET/PREFIX")
	case !bucketName.MatchString(bucket):
		return nil, fmt.Errorf("the bucket %.100q in the DSN must have 3 to 63 lower-case letters, digits, dots, and hyphens", bucket)
	case prefix != "" && slices.ContainsFunc(parts, func(part string) bool { return part == "" || part == "." || part == ".." }):
		return nil, errors.New("a part of the prefix in the DSN is empty, or is a dot or two")
	case len(t.prefix) > maxPrefix:
		return nil, fmt.Errorf("the prefix in the DSN has %d bytes, and may have %d", len(t.prefix), maxPrefix)
	case !t.Secure && (len(c.CA) > 0 || len(c.Cert) > 0):
		return nil, errors.New("with certificates, the DSN must begin with https://")
	}
	if err := t.setParameters(); err != nil {
		return nil, err
	}
	if t.Secure {
		t.tls, err = c.TLS()
	}
	return t, err
}

func (t *target) setParameters() error {
	for name, values := range t.Parameters {
		if len(values) != 1 || name != regionParameter && name != styleParameter {
			return fmt.Errorf("the DSN may have the parameters %s and %s, each once", regionParameter, styleParameter)
		}
	}
	if t.Parameters.Has(regionParameter) {
		if t.region = t.Parameters.Get(regionParameter); t.region == "" || strings.ContainsAny(t.region, " /\r\n") {
			return fmt.Errorf("the parameter %s of the DSN must be the name of a region", regionParameter)
		}
	}
	if t.Parameters.Has(styleParameter) {
		byPath, err := strconv.ParseBool(t.Parameters.Get(styleParameter))
		if err != nil {
			return fmt.Errorf("the parameter %s of the DSN must be true or false", styleParameter)
		}
		if t.lookup = minio.BucketLookupDNS; byPath {
			t.lookup = minio.BucketLookupPath
		}
	}
	return nil
}

// String names the server, the bucket, and the prefix.
func (t *target) String() string {
	return strings.TrimSuffix("S3 at "+t.Hosts[0]+"/"+t.bucket+"/"+t.prefix, "/")
}
