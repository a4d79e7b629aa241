package httpapi

import (
	"net/http"
	"net/url"
)

// newRequest is a GET of a target as it would stand in a request line.
func newRequest(target string) (*http.Request, bool) {
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, false
	}
	return &http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}}, true
}
