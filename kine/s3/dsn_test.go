// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/berth-dev/berth/kine/mirror"
)

func TestADSNNamesTheBucketAndThePrefix(t *testing.T) {
	for dsn, want := range map[string]target{
		"https://a:s@h:9000/bucket/spaces/demo?region=eu-1&path-style=true": {bucket: "bucket", prefix: "spaces/demo/", region: "eu-1", lookup: minio.BucketLookupPath},
		"http://a:s@h:9000/my.bucket/?path-style=false":                     {bucket: "my.bucket", region: defaultRegion, lookup: minio.BucketLookupDNS},
		"https://a:s%2F%2B@h:443/bucket/p":                                  {bucket: "bucket", prefix: "p/", region: defaultRegion},
	} {
		got, err := parse(mirror.Config{DSN: dsn})
		if err != nil {
			t.Errorf("%s: %v", dsn, err)
			continue
		}
		if got.bucket != want.bucket || got.prefix != want.prefix || got.region != want.region || got.lookup != want.lookup {
			t.Errorf("%s: %+v", dsn, got)
		}
		if strings.Contains(got.String(), "s@") || !strings.HasPrefix(got.String(), "S3 at h:") {
			t.Errorf("%s is %s", dsn, got)
		}
	}
}

func TestAWrongDSNSaysWhatIsWrong(t *testing.T) {
	for dsn, want := range map[string]string{
		"s3://a:s@h:1/bucket":                                "ACCESS-KEY:SECRET-KEY@host:port/BUCKET/PREFIX",
		"https://h:1/bucket/p":                               "must have an access key and a secret key",
		"https://a:s@h:1,i:2/bucket/p":                       "has 2 hosts, and must have one",
		"https://a:s@h/bucket/p":                             "host:port",
		"https://a:s@h:1":                                    "BUCKET/PREFIX",
		"https://a:s@h:1/Bucket/p":                           `the bucket "Bucket"`,
		"https://a:s@h:1/bucket/a//b":                        "a part of the prefix in the DSN is empty",
		"https://a:s@h:1/bucket/a/../b":                      "a part of the prefix in the DSN is empty",
		"https://a:s@h:1/bucket/p?zone=x":                    "the parameters region and path-style",
		"https://a:s@h:1/bucket/p?region=":                   "region",
		"https://a:s@h:1/bucket/p?region=a&region=b":         "each once",
		"https://a:s@h:1/bucket/p?path-style=2":              "path-style of the DSN must be true or false",
		"https://a:s@h:1/b/p":                                "3 to 63",
		"https://a:s@h:1/bucket/" + strings.Repeat("p", 600): "may have 512",
	} {
		if _, err := New(mirror.Config{DSN: dsn}, demo); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", dsn, err, want)
		}
	}
	if _, err := New(mirror.Config{DSN: "http://a:s@h:1/bucket/p", CA: []byte("x")}, demo); err == nil || !strings.Contains(err.Error(), "https://") {
		t.Errorf("certificates without TLS: %v", err)
	}
	if _, err := New(mirror.Config{DSN: "https://a:s@h:1/bucket/p", CA: []byte("x")}, demo); err == nil || !strings.Contains(err.Error(), "PEM") {
		t.Errorf("a CA that is none: %v", err)
	}
}
