package httpapi

import (
	"net/http"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
)

// refusals are the statuses of the problem documents that each operation can
// answer with, beside those that all of them have (everyOperation). A client's
// generator makes its error types of them.
var refusals = map[string][]int{
	"submitCall": {http.StatusRequestTimeout, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusTooManyRequests},
	"listCalls":  {},
	"getCall":    {http.StatusNotFound},
	"cancelCall": {http.StatusNotFound},
	"followCall": {http.StatusNotFound},
	"getBlob":    {http.StatusNotFound},
	"listTools":  {},
	"getTool":    {http.StatusNotFound},

	"getCatalogue":    {},
	"getDeclaration":  {http.StatusNotFound},
	"changeCatalogue": {http.StatusRequestTimeout, http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusInsufficientStorage},

	"listWorkers": {},

	"listDeadLetters":   {},
	"getDeadLetter":     {http.StatusNotFound},
	"redriveDeadLetter": {http.StatusRequestTimeout, http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusTooManyRequests},
	"dropDeadLetter":    {http.StatusNotFound},
}

// everyOperation can be refused because the request is malformed, who asks is
// not known or may not ask from there, and because the fleet is busy or fails.
var everyOperation = []int{
	http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden,
	http.StatusInternalServerError, http.StatusServiceUnavailable,
}

// describeRefusals writes the refusals into the document, in place of huma's
// own guesses: a 422 that this server answers as 400, or one "default" for all.
func describeRefusals(doc *huma.OpenAPI) {
	schema := doc.Components.Schemas.Schema(reflect.TypeFor[huma.ErrorModel](), true, "")
	for _, path := range doc.Paths {
		for _, op := range []*huma.Operation{path.Get, path.Post, path.Delete} {
			if op == nil || refusals[op.OperationID] == nil {
				continue
			}
			delete(op.Responses, "default")
			delete(op.Responses, strconv.Itoa(invalid))
			for _, statuses := range [][]int{everyOperation, refusals[op.OperationID]} {
				for _, status := range statuses {
					op.Responses[strconv.Itoa(status)] = &huma.Response{
						Description: http.StatusText(status),
						Content:     map[string]*huma.MediaType{"application/problem+json": {Schema: schema}},
					}
				}
			}
		}
	}
}
