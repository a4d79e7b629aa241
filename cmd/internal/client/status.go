package client

import "time"

// Status is the fleet at a moment, as its operators are shown it.
type Status struct {
	At       time.Time `json:"at"`
	Problems []string  `json:"problems"`
	Notices  []string  `json:"notices"`
	// Unknown names the members that could not be told.
	Unknown     []string           `json:"unknown"`
	Dispatchers []DispatcherStatus `json:"dispatchers"`
	Workers     []WorkerStatus     `json:"workers"`
	Queues      []QueueStatus      `json:"queues"`
	Dead        struct {
		Count  int          `json:"count"`
		Recent []LastLetter `json:"recent"`
	} `json:"deadLetters"`
	Catalogue *struct {
		Revision uint64 `json:"revision"`
		Tools    int    `json:"tools"`
	} `json:"catalogue"`
}

// DispatcherStatus is a dispatcher that is alive.
type DispatcherStatus struct {
	ID        string    `json:"id"`
	Version   string    `json:"version"`
	Started   time.Time `json:"started"`
	Beat      time.Time `json:"beat"`
	Ready     bool      `json:"ready"`
	Schedules bool      `json:"schedules"`
}

// WorkerStatus is a worker that is alive, and how it does.
type WorkerStatus struct {
	Worker
	Warm       int    `json:"warm"`
	WarmTarget int    `json:"warmTarget"`
	Sandboxes  int    `json:"sandboxes"`
	State      string `json:"state"`
}

// QueueStatus says where the calls of a class are.
type QueueStatus struct {
	Class         string  `json:"class"`
	Waiting       int     `json:"waiting"`
	Ready         int     `json:"ready"`
	InFlight      int     `json:"inFlight"`
	OldestSeconds float64 `json:"oldestSeconds"`
}

// LastLetter is one of the fleet's last dead letters.
type LastLetter struct {
	ID      string    `json:"id"`
	Tenant  string    `json:"tenant"`
	Tool    string    `json:"tool"`
	Kind    string    `json:"kind"`
	Message string    `json:"message"`
	Filed   time.Time `json:"filed"`
}
