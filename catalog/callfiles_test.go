package catalog_test

import (
	"testing"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/sandbox"
)

func TestFilesOfACall(t *testing.T) {
	pictures, none := []string{"image/*", "application/pdf"}, []string{}
	zero, some := catalog.Bytes(0), catalog.Bytes(1<<20)
	for _, tt := range []struct {
		files        *catalog.Files
		mimeType     string
		takes, wants bool
		out          int64
	}{
		{nil, "image/png", true, false, 64 << 20},
		{&catalog.Files{Out: &some}, "text/plain", true, false, 1 << 20},
		{&catalog.Files{In: &pictures}, "image/png", true, true, 64 << 20},
		{&catalog.Files{In: &pictures}, "Image/PNG; q=1", true, true, 64 << 20},
		{&catalog.Files{In: &pictures}, "imagery/png", false, false, 64 << 20},
		{&catalog.Files{In: &pictures}, "application/pdfx", false, false, 64 << 20},
		{&catalog.Files{In: &pictures}, "", false, false, 64 << 20},
		{&catalog.Files{In: &none, Out: &zero}, "image/png", false, false, 0},
		{&catalog.Files{In: &[]string{"*/*"}}, "x/y", true, true, 64 << 20},
	} {
		s := catalog.Spec{Files: tt.files}
		if takes, wants := s.TakesFile(tt.mimeType), s.WantsFile(tt.mimeType); takes != tt.takes || wants != tt.wants {
			t.Errorf("%+v and %q: takes %v, wants %v", tt.files, tt.mimeType, takes, wants)
		}
		if out := s.FilesOut(); out.Bytes != tt.out || (out == sandbox.FilesOut{}) != (tt.out == 0) {
			t.Errorf("%+v: out %+v", tt.files, out)
		}
	}
}
