// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"k8s.io/kubernetes/test/utils/image"
)

// printImages prints the stage of images/Dockerfile that makes an image, and the name by which the suite asks for it.
func printImages(out io.Writer) error {
	for _, i := range []struct {
		stage string
		id    image.ImageID
	}{
		{"agnhost", image.Agnhost},
		{"agnhost", image.AgnhostPrev},
		{"busybox", image.BusyBox},
		{"etcd", image.Etcd},
		{"glibc-dns-testing", image.GlibcDnsTesting},
		{"kitten", image.Kitten},
		{"nautilus", image.Nautilus},
		{"nginx", image.Nginx},
		{"nginx", image.NginxNew},
		{"nonewprivs", image.Nonewprivs},
		{"nonroot", image.NonRoot},
		{"pause", image.Pause},
		{"sample-apiserver", image.APIServer},
	} {
		if _, err := fmt.Fprintln(out, i.stage, image.GetE2EImage(i.id)); err != nil {
			return fmt.Errorf("print images: %w", err)
		}
	}
	return nil
}
